//! AES-GCM encryption. See [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_aes_gcm_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_aes_gcm.h";

            /// Creates an AES-GCM instance on a device.
            fn doca_aes_gcm_create(dev: *mut doca_dev, aes_gcm: *mut *mut doca_aes_gcm) -> doca_error_t;

            /// Destroys an idle AES-GCM instance.
            fn doca_aes_gcm_destroy(aes_gcm: *mut doca_aes_gcm) -> doca_error_t;

            /// The AES-GCM instance's context.
            fn doca_aes_gcm_as_ctx(aes_gcm: *mut doca_aes_gcm) -> *mut doca_ctx;

            /// Gets the maximum number of tasks of an instance.
            fn doca_aes_gcm_cap_get_max_num_tasks(
                aes_gcm: *mut doca_aes_gcm,
                max_num_tasks: *mut u32
            ) -> doca_error_t;

            /// Creates a key of 16 or 32 bytes; the bytes are copied.
            fn doca_aes_gcm_key_create(
                aes_gcm: *mut doca_aes_gcm,
                raw_key: *const c_void,
                raw_key_type: doca_aes_gcm_key_type,
                key: *mut *mut doca_aes_gcm_key
            ) -> doca_error_t;

            /// Destroys a key that no task in flight uses.
            fn doca_aes_gcm_key_destroy(key: *mut doca_aes_gcm_key) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can encrypt.
            fn doca_aes_gcm_cap_task_encrypt_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Gets the maximum length of an initialization vector in bytes.
            fn doca_aes_gcm_cap_task_encrypt_get_max_iv_len(
                devinfo: *const doca_devinfo,
                max_iv_len: *mut u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if tags of 12 bytes are supported.
            fn doca_aes_gcm_cap_task_encrypt_is_tag_96_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if tags of 16 bytes are supported.
            fn doca_aes_gcm_cap_task_encrypt_is_tag_128_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can encrypt with keys of this type.
            fn doca_aes_gcm_cap_task_encrypt_is_key_type_supported(
                devinfo: *const doca_devinfo,
                key_type: doca_aes_gcm_key_type
            ) -> doca_error_t;

            /// Gets the maximum number of bytes that one task can encrypt.
            fn doca_aes_gcm_cap_task_encrypt_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list; 1 means that lists are not supported.
            fn doca_aes_gcm_cap_task_encrypt_get_max_list_buf_num_elem(
                devinfo: *const doca_devinfo,
                max_list_num_elem: *mut u32
            ) -> doca_error_t;

            /// Sets the callbacks and the number of encrypt tasks; before the start.
            fn doca_aes_gcm_task_encrypt_set_conf(
                aes_gcm: *mut doca_aes_gcm,
                task_completion_cb: doca_aes_gcm_task_encrypt_completion_cb_t,
                task_error_cb: doca_aes_gcm_task_encrypt_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that encrypts what is behind the first `aad_size` bytes of the source, and appends these bytes, the ciphertext and the tag to the destination.
            fn doca_aes_gcm_task_encrypt_alloc_init(
                aes_gcm: *mut doca_aes_gcm,
                src_buff: *const doca_buf,
                dst_buff: *mut doca_buf,
                key: *mut doca_aes_gcm_key,
                iv: *const u8,
                iv_length: u32,
                tag_size: u32,
                aad_size: u32,
                user_data: doca_data,
                task: *mut *mut doca_aes_gcm_task_encrypt
            ) -> doca_error_t;

            /// The generic task of an encrypt task.
            fn doca_aes_gcm_task_encrypt_as_task(task: *mut doca_aes_gcm_task_encrypt) -> *mut doca_task;

            /// Sets the task's source.
            fn doca_aes_gcm_task_encrypt_set_src(
                task: *mut doca_aes_gcm_task_encrypt,
                src_buff: *const doca_buf
            );

            /// The buf that the task reads.
            fn doca_aes_gcm_task_encrypt_get_src(task: *const doca_aes_gcm_task_encrypt) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_aes_gcm_task_encrypt_set_dst(task: *mut doca_aes_gcm_task_encrypt, dst_buff: *mut doca_buf);

            /// The buf that the task writes.
            fn doca_aes_gcm_task_encrypt_get_dst(task: *const doca_aes_gcm_task_encrypt) -> *mut doca_buf;

            /// Sets the task's key.
            fn doca_aes_gcm_task_encrypt_set_key(
                task: *mut doca_aes_gcm_task_encrypt,
                key: *mut doca_aes_gcm_key
            );

            /// The key of the task.
            fn doca_aes_gcm_task_encrypt_get_key(
                task: *const doca_aes_gcm_task_encrypt
            ) -> *mut doca_aes_gcm_key;

            /// Sets the task's initialization vector; the bytes are copied.
            fn doca_aes_gcm_task_encrypt_set_iv(
                task: *mut doca_aes_gcm_task_encrypt,
                iv: *const u8,
                iv_length: u32
            );

            /// The initialization vector, valid until it is set again or the task is freed.
            fn doca_aes_gcm_task_encrypt_get_iv(
                task: *const doca_aes_gcm_task_encrypt,
                iv_length: *mut u32
            ) -> *const u8;

            /// Sets the length of the tag: 12 or 16 bytes.
            fn doca_aes_gcm_task_encrypt_set_tag_size(task: *mut doca_aes_gcm_task_encrypt, tag_size: u32);

            /// The length of the tag in bytes.
            fn doca_aes_gcm_task_encrypt_get_tag_size(task: *const doca_aes_gcm_task_encrypt) -> u32;

            /// Sets the length of the additional authenticated data at the start of the source, in bytes.
            fn doca_aes_gcm_task_encrypt_set_aad_size(task: *mut doca_aes_gcm_task_encrypt, aad_size: u32);

            /// Length of the additional authenticated data at the start of the source, in bytes.
            fn doca_aes_gcm_task_encrypt_get_aad_size(task: *const doca_aes_gcm_task_encrypt) -> u32;

            /// `DOCA_SUCCESS` if the device can decrypt.
            fn doca_aes_gcm_cap_task_decrypt_is_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// Gets the maximum length of an initialization vector in bytes.
            fn doca_aes_gcm_cap_task_decrypt_get_max_iv_len(
                devinfo: *const doca_devinfo,
                max_iv_len: *mut u32
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if tags of 12 bytes are supported.
            fn doca_aes_gcm_cap_task_decrypt_is_tag_96_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if tags of 16 bytes are supported.
            fn doca_aes_gcm_cap_task_decrypt_is_tag_128_supported(devinfo: *const doca_devinfo) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can decrypt with keys of this type.
            fn doca_aes_gcm_cap_task_decrypt_is_key_type_supported(
                devinfo: *const doca_devinfo,
                key_type: doca_aes_gcm_key_type
            ) -> doca_error_t;

            /// Gets the maximum number of bytes that one task can decrypt.
            fn doca_aes_gcm_cap_task_decrypt_get_max_buf_size(
                devinfo: *const doca_devinfo,
                max_buffer_size: *mut u64
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list; 1 means that lists are not supported.
            fn doca_aes_gcm_cap_task_decrypt_get_max_list_buf_num_elem(
                devinfo: *const doca_devinfo,
                max_list_num_elem: *mut u32
            ) -> doca_error_t;

            /// Sets the callbacks and the number of decrypt tasks; before the start.
            fn doca_aes_gcm_task_decrypt_set_conf(
                aes_gcm: *mut doca_aes_gcm,
                task_completion_cb: doca_aes_gcm_task_decrypt_completion_cb_t,
                task_error_cb: doca_aes_gcm_task_decrypt_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that checks the tag at the end of the source, and appends the first `aad_size` bytes and the plaintext to the destination.
            fn doca_aes_gcm_task_decrypt_alloc_init(
                aes_gcm: *mut doca_aes_gcm,
                src_buff: *const doca_buf,
                dst_buff: *mut doca_buf,
                key: *mut doca_aes_gcm_key,
                iv: *const u8,
                iv_length: u32,
                tag_size: u32,
                aad_size: u32,
                user_data: doca_data,
                task: *mut *mut doca_aes_gcm_task_decrypt
            ) -> doca_error_t;

            /// The generic task of a decrypt task.
            fn doca_aes_gcm_task_decrypt_as_task(task: *mut doca_aes_gcm_task_decrypt) -> *mut doca_task;

            /// Sets the task's source.
            fn doca_aes_gcm_task_decrypt_set_src(
                task: *mut doca_aes_gcm_task_decrypt,
                src_buff: *const doca_buf
            );

            /// The buf that the task reads.
            fn doca_aes_gcm_task_decrypt_get_src(task: *const doca_aes_gcm_task_decrypt) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_aes_gcm_task_decrypt_set_dst(task: *mut doca_aes_gcm_task_decrypt, dst_buff: *mut doca_buf);

            /// The buf that the task writes.
            fn doca_aes_gcm_task_decrypt_get_dst(task: *const doca_aes_gcm_task_decrypt) -> *mut doca_buf;

            /// Sets the task's key.
            fn doca_aes_gcm_task_decrypt_set_key(
                task: *mut doca_aes_gcm_task_decrypt,
                key: *mut doca_aes_gcm_key
            );

            /// The key of the task.
            fn doca_aes_gcm_task_decrypt_get_key(
                task: *const doca_aes_gcm_task_decrypt
            ) -> *mut doca_aes_gcm_key;

            /// Sets the task's initialization vector; the bytes are copied.
            fn doca_aes_gcm_task_decrypt_set_iv(
                task: *mut doca_aes_gcm_task_decrypt,
                iv: *const u8,
                iv_length: u32
            );

            /// The initialization vector, valid until it is set again or the task is freed.
            fn doca_aes_gcm_task_decrypt_get_iv(
                task: *const doca_aes_gcm_task_decrypt,
                iv_length: *mut u32
            ) -> *const u8;

            /// Sets the length of the tag: 12 or 16 bytes.
            fn doca_aes_gcm_task_decrypt_set_tag_size(task: *mut doca_aes_gcm_task_decrypt, tag_size: u32);

            /// The length of the tag in bytes.
            fn doca_aes_gcm_task_decrypt_get_tag_size(task: *const doca_aes_gcm_task_decrypt) -> u32;

            /// Sets the length of the additional authenticated data at the start of the source, in bytes.
            fn doca_aes_gcm_task_decrypt_set_aad_size(task: *mut doca_aes_gcm_task_decrypt, aad_size: u32);

            /// Length of the additional authenticated data at the start of the source, in bytes.
            fn doca_aes_gcm_task_decrypt_get_aad_size(task: *const doca_aes_gcm_task_decrypt) -> u32;
        }
    };
}

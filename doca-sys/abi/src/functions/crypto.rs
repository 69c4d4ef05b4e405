//! SHA digests and AES-GCM encryption. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_sha_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_sha.h";

            /// Creates a SHA instance on a device.
            fn doca_sha_create(dev: *mut doca_dev, sha: *mut *mut doca_sha) -> doca_error_t;

            /// Destroys an idle SHA instance.
            fn doca_sha_destroy(sha: *mut doca_sha) -> doca_error_t;

            /// The SHA instance's context.
            fn doca_sha_as_ctx(sha: *mut doca_sha) -> *mut doca_ctx;

            /// `DOCA_SUCCESS` if the device can hash whole messages with an algorithm.
            fn doca_sha_cap_task_hash_get_supported(
                devinfo: *const doca_devinfo,
                algorithm: doca_sha_algorithm
            ) -> doca_error_t;

            /// `DOCA_SUCCESS` if the device can hash messages in parts with an algorithm.
            fn doca_sha_cap_task_partial_hash_get_supported(
                devinfo: *const doca_devinfo,
                algorithm: doca_sha_algorithm
            ) -> doca_error_t;

            /// Gets the maximum number of bufs in a list; 1 means that lists are not supported.
            fn doca_sha_cap_get_max_list_buf_num_elem(
                devinfo: *const doca_devinfo,
                max_list_buf_num_elem: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of bytes that one task can hash.
            fn doca_sha_cap_get_max_src_buf_size(
                devinfo: *const doca_devinfo,
                max_src_buf_size: *mut u64
            ) -> doca_error_t;

            /// Gets the length of a digest in bytes, which the destination must be able to hold.
            fn doca_sha_cap_get_min_dst_buf_size(
                devinfo: *const doca_devinfo,
                algorithm: doca_sha_algorithm,
                min_dst_buf_size: *mut u32
            ) -> doca_error_t;

            /// Gets the block length in bytes, which must divide the length of each part but the last.
            fn doca_sha_cap_get_partial_hash_block_size(
                devinfo: *const doca_devinfo,
                algorithm: doca_sha_algorithm,
                partial_block_size: *mut u32
            ) -> doca_error_t;

            /// Gets the maximum number of tasks of an instance.
            fn doca_sha_cap_get_max_num_tasks(sha: *mut doca_sha, max_num_tasks: *mut u32) -> doca_error_t;

            /// Sets the callbacks and the binary logarithm of the number of hash tasks; only before the start.
            fn doca_sha_task_hash_set_conf(
                sha: *mut doca_sha,
                task_completion_cb: doca_sha_task_hash_completion_cb_t,
                task_error_cb: doca_sha_task_hash_completion_cb_t,
                log_num_tasks: u8
            ) -> doca_error_t;

            /// Allocates a task that appends the digest of the source's data to the destination's data.
            fn doca_sha_task_hash_alloc_init(
                sha: *mut doca_sha,
                algorithm: doca_sha_algorithm,
                src_buf: *const doca_buf,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_sha_task_hash
            ) -> doca_error_t;

            /// Sets the task's source.
            fn doca_sha_task_hash_set_src(
                task: *mut doca_sha_task_hash,
                src_buf: *const doca_buf
            ) -> doca_error_t;

            /// The buf from which the task reads.
            fn doca_sha_task_hash_get_src(task: *const doca_sha_task_hash) -> *const doca_buf;

            /// Sets the task's destination.
            fn doca_sha_task_hash_set_dst(
                task: *mut doca_sha_task_hash,
                dst_buf: *mut doca_buf
            ) -> doca_error_t;

            /// The buf to which the task appends the digest.
            fn doca_sha_task_hash_get_dst(task: *const doca_sha_task_hash) -> *const doca_buf;

            /// Sets the algorithm.
            fn doca_sha_task_hash_set_algorithm(
                task: *mut doca_sha_task_hash,
                algorithm: doca_sha_algorithm
            ) -> doca_error_t;

            /// The algorithm.
            fn doca_sha_task_hash_get_algorithm(task: *const doca_sha_task_hash) -> doca_sha_algorithm;

            /// The generic task of a hash task.
            fn doca_sha_task_hash_as_task(task: *mut doca_sha_task_hash) -> *mut doca_task;

            /// Sets the callbacks and the binary logarithm of the number of partial hash tasks; only before the start.
            fn doca_sha_task_partial_hash_set_conf(
                sha: *mut doca_sha,
                task_completion_cb: doca_sha_task_partial_hash_completion_cb_t,
                task_error_cb: doca_sha_task_partial_hash_completion_cb_t,
                log_num_tasks: u8
            ) -> doca_error_t;

            /// Allocates a task that is submitted once for each part of a message, and appends the digest after the
            /// last part.
            fn doca_sha_task_partial_hash_alloc_init(
                sha: *mut doca_sha,
                algorithm: doca_sha_algorithm,
                src_buf: *const doca_buf,
                dst_buf: *mut doca_buf,
                user_data: doca_data,
                task: *mut *mut doca_sha_task_partial_hash
            ) -> doca_error_t;

            /// Resets the task for another message.
            fn doca_sha_task_partial_hash_reset(task: *mut doca_sha_task_partial_hash) -> doca_error_t;

            /// Sets the task's source.
            fn doca_sha_task_partial_hash_set_src(
                task: *mut doca_sha_task_partial_hash,
                src_buf: *const doca_buf
            ) -> doca_error_t;

            /// The buf from which the task reads.
            fn doca_sha_task_partial_hash_get_src(task: *const doca_sha_task_partial_hash) -> *const doca_buf;

            /// Sets the task's destination; before the first part.
            fn doca_sha_task_partial_hash_set_dst(
                task: *mut doca_sha_task_partial_hash,
                dst_buf: *mut doca_buf
            ) -> doca_error_t;

            /// The buf to which the task appends the digest.
            fn doca_sha_task_partial_hash_get_dst(task: *const doca_sha_task_partial_hash) -> *const doca_buf;

            /// Sets the algorithm; before the first part.
            fn doca_sha_task_partial_hash_set_algorithm(
                task: *mut doca_sha_task_partial_hash,
                algorithm: doca_sha_algorithm
            ) -> doca_error_t;

            /// The algorithm.
            fn doca_sha_task_partial_hash_get_algorithm(
                task: *const doca_sha_task_partial_hash
            ) -> doca_sha_algorithm;

            /// Marks the source as the last part of the message.
            fn doca_sha_task_partial_hash_set_is_final_buf(
                task: *mut doca_sha_task_partial_hash
            ) -> doca_error_t;

            /// 1 if the source is the last part of the message.
            fn doca_sha_task_partial_hash_get_is_final(task: *const doca_sha_task_partial_hash) -> u8;

            /// 1 if the digest was appended to the destination.
            fn doca_sha_task_partial_hash_get_has_result(task: *const doca_sha_task_partial_hash) -> u8;

            /// The generic task of a partial hash task.
            fn doca_sha_task_partial_hash_as_task(task: *mut doca_sha_task_partial_hash) -> *mut doca_task;
        }
    };
}

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

            /// Sets the callbacks and the number of encrypt tasks; only before the start.
            fn doca_aes_gcm_task_encrypt_set_conf(
                aes_gcm: *mut doca_aes_gcm,
                task_completion_cb: doca_aes_gcm_task_encrypt_completion_cb_t,
                task_error_cb: doca_aes_gcm_task_encrypt_completion_cb_t,
                num_tasks: u32
            ) -> doca_error_t;

            /// Allocates a task that encrypts the bytes after the first `aad_size` bytes of the source, and appends
            /// these bytes, the ciphertext and the tag to the destination.
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

            /// The buf from which the task reads.
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

            /// Sets the callbacks and the number of decrypt tasks; only before the start.
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

            /// The buf from which the task reads.
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

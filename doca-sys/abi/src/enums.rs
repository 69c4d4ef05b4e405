//! Enums, each an integer type with constants; sizes and versions.

use core::ffi::CStr;

use crate::{ConstantDecl, EnumDecl, EnumValue, c_int, c_void};

macro_rules! enums {
    ($(
        header $header:literal
        enum $tag:ident as $name:ident, $doc:literal {
            $($value_name:ident = $value:expr, $value_doc:literal;)+
        }
    )+) => {
        $(
            #[doc = $doc]
            pub type $name = u32;
            $(
                #[doc = $value_doc]
                #[allow(non_upper_case_globals, reason = "names of the C API")]
                pub const $value_name: $name = $value;
            )+
        )+

        /// All enums.
        pub const ENUMS: &[EnumDecl] = &[$(
            EnumDecl {
                header: $header,
                name: stringify!($name),
                tag: stringify!($tag),
                doc: $doc,
                values: &[$(
                    EnumValue { name: stringify!($value_name), value: $value, doc: $value_doc },
                )+],
            },
        )+];
    };
}

/// Defines the errors once more as C strings, which `doca_error_get_name` and `doca_error_get_descr` must return.
macro_rules! errors {
    ($($name:ident = $value:literal, $doc:literal;)+) => {
        enums! {
            header "doca_error.h"
            enum doca_error as doca_error_t, "Result of nearly every function." { $($name = $value, $doc;)+ }

            header "doca_log.h"
            enum doca_log_level as doca_log_level, "Severities of log messages; larger values are less severe." {
                DOCA_LOG_LEVEL_DISABLE = 10, "No messages.";
                DOCA_LOG_LEVEL_CRIT = 20, "The program cannot continue.";
                DOCA_LOG_LEVEL_ERROR = 30, "An operation failed.";
                DOCA_LOG_LEVEL_WARNING = 40, "Something unexpected that was handled.";
                DOCA_LOG_LEVEL_INFO = 50, "Information for users.";
                DOCA_LOG_LEVEL_DEBUG = 60, "Information for developers.";
                DOCA_LOG_LEVEL_TRACE = 70, "Every step of the data path.";
            }

            header "doca_types.h"
            enum doca_access_flag as doca_access_flag, "Permissions of memory; or them together." {
                DOCA_ACCESS_FLAG_LOCAL_READ_ONLY = 0, "Local contexts may read.";
                DOCA_ACCESS_FLAG_LOCAL_READ_WRITE = 1 << 0, "Local contexts may read and write.";
                DOCA_ACCESS_FLAG_RDMA_READ = 1 << 1, "RDMA peers may read.";
                DOCA_ACCESS_FLAG_RDMA_WRITE = 1 << 2, "RDMA peers may write.";
                DOCA_ACCESS_FLAG_RDMA_ATOMIC = 1 << 3, "RDMA peers may use atomic operations.";
                DOCA_ACCESS_FLAG_PCI_READ_ONLY = 1 << 4, "A peer across PCIe may read.";
                DOCA_ACCESS_FLAG_PCI_READ_WRITE = 1 << 5, "A peer across PCIe may read and write.";
                DOCA_ACCESS_FLAG_PCI_RELAXED_ORDERING = 1 << 6, "Accesses across PCIe may be reordered.";
            }

            header "doca_types.h"
            enum doca_pci_func_type as doca_pci_func_type, "Kinds of PCI functions." {
                DOCA_PCI_FUNC_TYPE_PF = 0, "Physical function.";
                DOCA_PCI_FUNC_TYPE_VF = 1, "Virtual function.";
                DOCA_PCI_FUNC_TYPE_SF = 2, "Sub-function.";
            }

            header "doca_types.h"
            enum doca_gpu_mem_type as doca_gpu_mem_type, "Location of GPU memory, and its accessibility from the CPU." {
                DOCA_GPU_MEM_TYPE_GPU = 0, "On the GPU, for the GPU only.";
                DOCA_GPU_MEM_TYPE_GPU_CPU = 1, "On the GPU, reached by the CPU as well.";
                DOCA_GPU_MEM_TYPE_CPU_GPU = 2, "On the host, reached by the GPU as well.";
            }

            header "doca_types.h"
            enum doca_eth_wait_on_time_type as doca_eth_wait_on_time_type, "Timed sending of an Ethernet queue." {
                DOCA_ETH_WAIT_ON_TIME_TYPE_NONE = 0, "It cannot.";
                DOCA_ETH_WAIT_ON_TIME_TYPE_NATIVE = 1, "By hardware.";
                DOCA_ETH_WAIT_ON_TIME_TYPE_DPDK = 2, "By software.";
            }

            header "doca_dev.h"
            enum doca_devinfo_rep_filter as doca_devinfo_rep_filter, "Which representors to list." {
                DOCA_DEVINFO_REP_FILTER_ALL = 0, "All representors.";
                DOCA_DEVINFO_REP_FILTER_NET = 1 << 1, "Representors of network functions.";
                DOCA_DEVINFO_REP_FILTER_EMULATED = 1 << 2, "Representors of emulated functions.";
            }

            header "doca_ctx.h"
            enum doca_ctx_states as doca_ctx_states, "States of a context." {
                DOCA_CTX_STATE_IDLE = 0, "Not started, or stopped; may be configured and destroyed.";
                DOCA_CTX_STATE_STARTING = 1, "Becomes running, or idle again, through progress.";
                DOCA_CTX_STATE_RUNNING = 2, "Tasks can be allocated and submitted.";
                DOCA_CTX_STATE_STOPPING = 3, "Flushes its tasks; idle when the last one is freed.";
            }

            header "doca_pe.h"
            enum doca_task_batch_max_tasks_number as doca_task_batch_max_tasks_number, "Capacities of task batches." {
                DOCA_TASK_BATCH_MAX_TASKS_NUMBER_16 = 0, "16 tasks.";
                DOCA_TASK_BATCH_MAX_TASKS_NUMBER_32 = 1, "32 tasks.";
                DOCA_TASK_BATCH_MAX_TASKS_NUMBER_64 = 2, "64 tasks.";
                DOCA_TASK_BATCH_MAX_TASKS_NUMBER_128 = 3, "128 tasks.";
            }

            header "doca_pe.h"
            enum doca_event_batch_events_number as doca_event_batch_events_number, "Numbers of events that are reported together." {
                DOCA_EVENT_BATCH_EVENTS_NUMBER_1 = 0, "One event.";
                DOCA_EVENT_BATCH_EVENTS_NUMBER_2 = 1, "2 events.";
                DOCA_EVENT_BATCH_EVENTS_NUMBER_4 = 2, "4 events.";
                DOCA_EVENT_BATCH_EVENTS_NUMBER_8 = 3, "8 events.";
                DOCA_EVENT_BATCH_EVENTS_NUMBER_16 = 4, "16 events.";
                DOCA_EVENT_BATCH_EVENTS_NUMBER_32 = 5, "32 events.";
                DOCA_EVENT_BATCH_EVENTS_NUMBER_64 = 6, "64 events.";
                DOCA_EVENT_BATCH_EVENTS_NUMBER_128 = 7, "128 events.";
            }

            header "doca_pe.h"
            enum doca_task_submit_flag as doca_task_submit_flag, "How a task is submitted; or them together." {
                DOCA_TASK_SUBMIT_FLAG_NONE = 0, "It may wait for others.";
                DOCA_TASK_SUBMIT_FLAG_FLUSH = 1 << 0, "It starts at once, with those before it: as doca_task_submit.";
                DOCA_TASK_SUBMIT_FLAG_OPTIMIZE_REPORTS = 1 << 1, "Its completion may be reported with a later one's.";
            }

            header "doca_pe.h"
            enum doca_pe_event_mode as doca_pe_event_mode, "Event mode of a progress engine." {
                DOCA_PE_EVENT_MODE_PROGRESS_SELECTIVE = 0, "Contexts that have events.";
                DOCA_PE_EVENT_MODE_PROGRESS_ALL = 1, "All contexts.";
            }

            header "doca_comch.h"
            enum doca_comch_counter as doca_comch_counter, "Counters of a connection's control path." {
                DOCA_COMCH_COUNTER_SENT_MESSAGES = 1, "Messages that were sent.";
                DOCA_COMCH_COUNTER_SENT_BYTES = 2, "Their bytes.";
                DOCA_COMCH_COUNTER_RECV_MESSAGES = 3, "Messages that were received.";
                DOCA_COMCH_COUNTER_RECV_BYTES = 4, "Their bytes.";
            }

            header "doca_rdma.h"
            enum doca_rdma_transport_type as doca_rdma_transport_type, "Transports of RDMA." {
                DOCA_RDMA_TRANSPORT_TYPE_RC = 0, "Reliable connection: one peer.";
                DOCA_RDMA_TRANSPORT_TYPE_DC = 1, "Dynamic connection: many peers.";
            }

            header "doca_types.h"
            enum doca_mtu_size as doca_mtu_size, "Sizes of network packets." {
                DOCA_MTU_SIZE_256_BYTES = 0, "256 bytes.";
                DOCA_MTU_SIZE_512_BYTES = 1, "512 bytes.";
                DOCA_MTU_SIZE_1K_BYTES = 2, "1 KiB.";
                DOCA_MTU_SIZE_2K_BYTES = 3, "2 KiB.";
                DOCA_MTU_SIZE_4K_BYTES = 4, "4 KiB.";
                DOCA_MTU_SIZE_RAW_ETHERNET = 5, "Reserved.";
            }

            header "doca_rdma.h"
            enum doca_rdma_addr_type as doca_rdma_addr_type, "Kinds of addresses." {
                DOCA_RDMA_ADDR_TYPE_IPv4 = 0, "An IPv4 address.";
                DOCA_RDMA_ADDR_TYPE_IPv6 = 1, "An IPv6 address.";
                DOCA_RDMA_ADDR_TYPE_GID = 2, "A global identifier.";
            }

            header "doca_rdma.h"
            enum doca_rdma_opcode as doca_rdma_opcode, "Kind of message that a receive task has received." {
                DOCA_RDMA_OPCODE_RECV_SEND = 0, "A message.";
                DOCA_RDMA_OPCODE_RECV_SEND_WITH_IMM = 1, "A message with an immediate value.";
                DOCA_RDMA_OPCODE_RECV_WRITE_WITH_IMM = 2, "The immediate value of a remote write.";
            }

            header "doca_argp.h"
            enum doca_argp_type as doca_argp_type, "Types of a parameter's value." {
                DOCA_ARGP_TYPE_UNKNOWN = 0, "None.";
                DOCA_ARGP_TYPE_STRING = 1, "A string.";
                DOCA_ARGP_TYPE_INT = 2, "An int.";
                DOCA_ARGP_TYPE_BOOLEAN = 3, "A bool: true when the flag is given.";
                DOCA_ARGP_TYPE_DEVICE = 4, "A device, opened: struct doca_argp_device_ctx.";
                DOCA_ARGP_TYPE_DEVICE_REP = 5, "A representor, opened: struct doca_argp_device_rep_ctx.";
                DOCA_ARGP_TYPE_DOUBLE = 6, "A double.";
                DOCA_ARGP_TYPE_JSON_OBJ = 256, "The text of a JSON object, JSON file only; DOCA up to 3.0 has it as 4.";
            }

            header "doca_sha.h"
            enum doca_sha_algorithm as doca_sha_algorithm, "Algorithms of digests." {
                DOCA_SHA_ALGORITHM_SHA1 = 0, "SHA-1: 20 bytes.";
                DOCA_SHA_ALGORITHM_SHA256 = 1, "SHA-256: 32 bytes.";
                DOCA_SHA_ALGORITHM_SHA512 = 2, "SHA-512: 64 bytes.";
            }

            header "doca_aes_gcm.h"
            enum doca_aes_gcm_key_type as doca_aes_gcm_key_type, "Lengths of keys." {
                DOCA_AES_GCM_KEY_128 = 1, "16 bytes.";
                DOCA_AES_GCM_KEY_256 = 2, "32 bytes.";
            }

            header "doca_erasure_coding.h"
            enum doca_ec_matrix_type as doca_ec_matrix_type, "Choice of the factors of a coding matrix." {
                DOCA_EC_MATRIX_TYPE_CAUCHY = 1, "Any losses can be recovered, as many as there are redundancy blocks.";
                DOCA_EC_MATRIX_TYPE_VANDERMONDE = 2, "Some patterns of losses cannot be recovered.";
            }
        }

        /// Name of an error code; `None` for a value that the API does not define.
        ///
        /// ```
        /// assert_eq!(doca_abi::error_name(doca_abi::DOCA_ERROR_AGAIN), Some(c"DOCA_ERROR_AGAIN"));
        /// assert_eq!(doca_abi::error_name(1_000), None);
        /// ```
        pub const fn error_name(error: doca_error_t) -> Option<&'static CStr> {
            match error {
                $($name => Some(c_string(concat!(stringify!($name), "\0"))),)+
                _ => None,
            }
        }

        /// One line that explains an error code; `None` for a value that the API does not define.
        pub const fn error_description(error: doca_error_t) -> Option<&'static CStr> {
            match error {
                $($name => Some(c_string(concat!($doc, "\0"))),)+
                _ => None,
            }
        }
    };
}

const fn c_string(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(string) => string,
        Err(_) => panic!("the macro appends the only zero"),
    }
}

errors! {
    DOCA_SUCCESS = 0, "Success";
    DOCA_ERROR_UNKNOWN = 1, "An error of unknown cause";
    DOCA_ERROR_NOT_PERMITTED = 2, "The operation is not permitted";
    DOCA_ERROR_IN_USE = 3, "The object is still in use";
    DOCA_ERROR_NOT_SUPPORTED = 4, "The operation is not supported";
    DOCA_ERROR_AGAIN = 5, "Not possible at the moment, try again";
    DOCA_ERROR_INVALID_VALUE = 6, "An argument has an invalid value";
    DOCA_ERROR_NO_MEMORY = 7, "Out of memory or of another limited resource";
    DOCA_ERROR_INITIALIZATION = 8, "A resource could not be initialized";
    DOCA_ERROR_TIME_OUT = 9, "The time for the operation ran out";
    DOCA_ERROR_SHUTDOWN = 10, "A shutdown is in progress or done";
    DOCA_ERROR_CONNECTION_RESET = 11, "The peer reset the connection";
    DOCA_ERROR_CONNECTION_ABORTED = 12, "The connection was aborted";
    DOCA_ERROR_CONNECTION_INPROGRESS = 13, "The connection is being made";
    DOCA_ERROR_NOT_CONNECTED = 14, "There is no connection";
    DOCA_ERROR_NO_LOCK = 15, "A lock could not be taken";
    DOCA_ERROR_NOT_FOUND = 16, "What was asked for was not found";
    DOCA_ERROR_IO_FAILED = 17, "An input or output operation failed";
    DOCA_ERROR_BAD_STATE = 18, "The object's state does not allow the operation";
    DOCA_ERROR_UNSUPPORTED_VERSION = 19, "The version is not supported";
    DOCA_ERROR_OPERATING_SYSTEM = 20, "A call of the operating system failed";
    DOCA_ERROR_DRIVER = 21, "A call of the device driver failed";
    DOCA_ERROR_UNEXPECTED = 22, "Something unexpected happened";
    DOCA_ERROR_ALREADY_EXIST = 23, "The object exists already";
    DOCA_ERROR_FULL = 24, "There is no room for more";
    DOCA_ERROR_EMPTY = 25, "There is nothing to take";
    DOCA_ERROR_IN_PROGRESS = 26, "The operation continues and completes later";
    DOCA_ERROR_TOO_BIG = 27, "The request is larger than the limit";
    DOCA_ERROR_AUTHENTICATION = 28, "Authentication failed";
    DOCA_ERROR_BAD_CONFIG = 29, "The configuration is not valid";
    DOCA_ERROR_SKIPPED = 30, "Nothing was done because it was not needed";
}

macro_rules! constants {
    ($(header $header:literal { $($name:ident: $ty:ty = $value:literal, $doc:literal;)+ })+) => {
        $($(
            #[doc = $doc]
            pub const $name: $ty = $value;
        )+)+

        /// All constants.
        pub const CONSTANTS: &[ConstantDecl] = &[$($(
            ConstantDecl { header: $header, name: stringify!($name), value: $value, doc: $doc },
        )+)+];
    };
}

constants! {
    header "doca_version.h" {
        DOCA_VERSION_MAJOR: u32 = 3, "Version of the API that these declarations follow: major.";
        DOCA_VERSION_MINOR: u32 = 3, "Version of the API that these declarations follow: minor.";
        DOCA_VERSION_PATCH: u32 = 0, "Version of the API that these declarations follow: patch.";
    }

    header "doca_clock.h" {
        DOCA_CLOCK_NIC_FREE_RUNNING: u64 = 0x1, "A clock of the device that nothing sets.";
        DOCA_CLOCK_NIC_REAL_TIME: u64 = 0x2, "A clock of the device for real time.";
        DOCA_CLOCK_NIC_DPA_TIMER: u64 = 0x100, "The timer of the device's DPA.";
        DOCA_CLOCK_HOST_COUNTER_CYCLES: u64 = 0x10000, "The counter of the CPU, in cycles.";
        DOCA_CLOCK_HOST_REAL_TIME: u64 = 0x20000, "Real time of the host.";
        DOCA_CLOCK_HOST_MONOTONIC: u64 = 0x40000, "Time of the host since some moment, adjusted.";
        DOCA_CLOCK_HOST_MONOTONIC_RAW: u64 = 0x80000, "Time of the host since some moment, as the hardware counts it.";
    }

    header "doca_log.h" {
        DOCA_LOGGER_NAME_SIZE: usize = 256, "Bytes of a logger's name with the terminating zero.";
    }

    header "doca_types.h" {
        DOCA_GID_BYTE_LENGTH: usize = 16, "Bytes of a GID.";
    }

    header "doca_dev.h" {
        DOCA_DEVINFO_VUID_SIZE: usize = 128, "Bytes of a device's vendor unique id with the terminating zero.";
        DOCA_DEVINFO_IPV4_ADDR_SIZE: usize = 4, "Bytes of an IPv4 address.";
        DOCA_DEVINFO_IPV6_ADDR_SIZE: usize = 16, "Bytes of an IPv6 address.";
        DOCA_DEVINFO_MAC_ADDR_SIZE: usize = 6, "Bytes of a MAC address.";
        DOCA_DEVINFO_IFACE_NAME_SIZE: usize = 256, "Bytes of a network interface's name with the terminating zero.";
        DOCA_DEVINFO_IBDEV_NAME_SIZE: usize = 64, "Bytes of an InfiniBand device's name with the terminating zero.";
        DOCA_DEVINFO_PCI_ADDR_SIZE: usize = 13, "Bytes of a PCI address with domain (`0000:03:00.0`) and terminating zero.";
        DOCA_DEVINFO_PCI_BDF_SIZE: usize = 8, "Bytes of a PCI address without domain (`03:00.0`) and with terminating zero.";
        DOCA_DEVINFO_REP_VUID_SIZE: usize = 128, "Bytes of a representor's vendor unique id with the terminating zero.";
        DOCA_DEVINFO_REP_PCI_ADDR_SIZE: usize = 13, "Bytes of a represented function's PCI address with domain and terminating zero.";
        DOCA_DEVINFO_REP_PCI_BDF_SIZE: usize = 8, "Bytes of a represented function's PCI address without domain and with terminating zero.";
    }
}

/// A file descriptor that carries events.
pub type doca_event_handle_t = c_int;

/// A file descriptor of a Comm Channel endpoint of 2.5 and 2.6.
pub type doca_event_channel_t = doca_event_handle_t;

/// A file descriptor that carries a progress engine's notifications.
pub type doca_notification_handle_t = doca_event_handle_t;

/// No descriptor.
#[allow(non_upper_case_globals, reason = "the name is that of the C API")]
pub const doca_event_invalid_handle: doca_event_handle_t = -1;

/// A 16-bit integer in network byte order: the bytes are in memory as they are on the wire.
pub type doca_be16_t = u16;

/// A 32-bit integer in network byte order: the bytes are in memory as they are on the wire.
pub type doca_be32_t = u32;

/// A 64-bit integer in network byte order: the bytes are in memory as they are on the wire.
pub type doca_be64_t = u64;

/// A stream of C's standard library, known here only by pointer.
pub type FILE = c_void;

/// An initialized `va_list`. C compilers pass this type as a pointer on all platforms of the API, hence the pointer
/// here.
pub type va_list = *mut c_void;

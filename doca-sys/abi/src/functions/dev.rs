//! Devices and representors. One macro per header; see [`doca_functions!`](crate::doca_functions).

#[doc(hidden)]
#[macro_export]
macro_rules! doca_dev_functions {
    ($($callback:ident)::+ $(, $($arguments:tt)*)?) => {
        $($callback)::+! {
            [$($($arguments)*)?]
            header "doca_dev.h";

            /// Lists the local devices; release with [`doca_devinfo_destroy_list`]. The list is NULL-terminated.
            fn doca_devinfo_create_list(
                dev_list: *mut *mut *mut doca_devinfo,
                nb_devs: *mut u32
            ) -> doca_error_t;

            /// Releases a list of devices; devices opened from it stay open.
            fn doca_devinfo_destroy_list(dev_list: *mut *mut doca_devinfo) -> doca_error_t;

            /// Lists the representors of a device selected by a [`doca_devinfo_rep_filter`].
            fn doca_devinfo_rep_create_list(
                dev: *mut doca_dev,
                filter: c_int,
                dev_list_rep: *mut *mut *mut doca_devinfo_rep,
                nb_devs_rep: *mut u32
            ) -> doca_error_t;

            /// Releases a list of representors; representors opened from it stay open.
            fn doca_devinfo_rep_destroy_list(
                dev_list_rep: *mut *mut doca_devinfo_rep
            ) -> doca_error_t;

            /// Opens a device; each open needs one close.
            fn doca_dev_open(
                devinfo: *mut doca_devinfo,
                dev: *mut *mut doca_dev
            ) -> doca_error_t;

            /// Closes a device; `DOCA_ERROR_IN_USE` while an object created from it exists.
            fn doca_dev_close(dev: *mut doca_dev) -> doca_error_t;

            /// Opens a representor; each open needs one close.
            fn doca_dev_rep_open(
                devinfo: *mut doca_devinfo_rep,
                dev_rep: *mut *mut doca_dev_rep
            ) -> doca_error_t;

            /// Closes a representor.
            fn doca_dev_rep_close(dev: *mut doca_dev_rep) -> doca_error_t;

            /// The information object of an open device; it lives as long as the device is open.
            fn doca_dev_as_devinfo(dev: *const doca_dev) -> *mut doca_devinfo;

            /// Writes the PCI address, `DOCA_DEVINFO_PCI_ADDR_SIZE` bytes with the terminating zero.
            fn doca_devinfo_get_pci_addr_str(
                devinfo: *const doca_devinfo,
                pci_addr_str: *mut c_char
            ) -> doca_error_t;

            /// Compares the PCI address with `"0000:03:00.0"` or `"03:00.0"`; `is_equal` becomes 1 or 0.
            fn doca_devinfo_is_equal_pci_addr(
                devinfo: *const doca_devinfo,
                pci_addr_str: *const c_char,
                is_equal: *mut u8
            ) -> doca_error_t;

            /// Writes the network interface's name; `size` must be at least `DOCA_DEVINFO_IFACE_NAME_SIZE`.
            fn doca_devinfo_get_iface_name(
                devinfo: *const doca_devinfo,
                iface_name: *mut c_char,
                size: u32
            ) -> doca_error_t;

            /// Writes the InfiniBand device's name; `size` must be at least `DOCA_DEVINFO_IBDEV_NAME_SIZE`.
            fn doca_devinfo_get_ibdev_name(
                devinfo: *const doca_devinfo,
                ibdev_name: *mut c_char,
                size: u32
            ) -> doca_error_t;

            /// Gets the type of the PCI function: physical, virtual or sub-function.
            fn doca_devinfo_get_pci_func_type(
                devinfo: *const doca_devinfo,
                pci_func_type: *mut doca_pci_func_type
            ) -> doca_error_t;

            /// Index of a sub-function; an error for other kinds of functions.
            fn doca_devinfo_get_sf_index(
                devinfo: *const doca_devinfo,
                sf_index: *mut u32
            ) -> doca_error_t;

            /// 1 if the device can list network representors, otherwise 0.
            fn doca_devinfo_rep_cap_is_filter_net_supported(
                devinfo: *const doca_devinfo,
                filter_net_supported: *mut u8
            ) -> doca_error_t;

            /// Writes the representor's vendor unique id; `size` must be at least `DOCA_DEVINFO_REP_VUID_SIZE`.
            fn doca_devinfo_rep_get_vuid(
                devinfo_rep: *const doca_devinfo_rep,
                rep_vuid: *mut c_char,
                size: u32
            ) -> doca_error_t;

            /// Writes the PCI address of the represented function, `DOCA_DEVINFO_REP_PCI_ADDR_SIZE` bytes with the zero.
            fn doca_devinfo_rep_get_pci_addr_str(
                devinfo_rep: *const doca_devinfo_rep,
                pci_addr_str: *mut c_char
            ) -> doca_error_t;

            /// Compares the represented function's PCI address with a string, with or without domain.
            fn doca_devinfo_rep_is_equal_pci_addr(
                devinfo_rep: *const doca_devinfo_rep,
                pci_addr_str: *const c_char,
                is_equal: *mut u8
            ) -> doca_error_t;

            /// The information object of an open representor; it lives as long as the representor is open.
            fn doca_dev_rep_as_devinfo(dev_rep: *mut doca_dev_rep) -> *mut doca_devinfo_rep;

            /// IPv4 address of the interface, in network order.
            fn doca_devinfo_get_ipv4_addr(
                devinfo: *const doca_devinfo,
                ipv4_addr: *mut u8,
                size: u32
            ) -> doca_error_t;

            /// Hardware address of the interface.
            fn doca_devinfo_get_mac_addr(
                devinfo: *const doca_devinfo,
                mac_addr: *mut u8,
                size: u32
            ) -> doca_error_t;

            /// 1 if the device can hotplug emulated functions.
            fn doca_devinfo_cap_is_hotplug_manager_supported(
                devinfo: *const doca_devinfo,
                is_hotplug_manager: *mut u8
            ) -> doca_error_t;

            /// 1 if notifications can be moderated.
            fn doca_devinfo_cap_is_notification_moderation_supported(
                devinfo: *const doca_devinfo,
                is_notification_moderation_supported: *mut u8
            ) -> doca_error_t;

            /// 1 if all representors of the device can be listed.
            fn doca_devinfo_rep_cap_is_filter_all_supported(
                devinfo: *const doca_devinfo,
                filter_all_supported: *mut u8
            ) -> doca_error_t;

            /// 1 if representors of emulated functions can be listed.
            fn doca_devinfo_rep_cap_is_filter_emulated_supported(
                devinfo: *const doca_devinfo,
                filter_emulated_supported: *mut u8
            ) -> doca_error_t;

            /// Type of the represented PCI function.
            fn doca_devinfo_rep_get_pci_func_type(
                devinfo_rep: *const doca_devinfo_rep,
                pci_func_type: *mut doca_pci_func_type
            ) -> doca_error_t;

            /// Name of the representor's network interface.
            fn doca_devinfo_rep_get_iface_name(
                devinfo_rep: *const doca_devinfo_rep,
                iface_name: *mut c_char,
                size: u32
            ) -> doca_error_t;

            /// 1 if the represented function was hotplugged.
            fn doca_devinfo_rep_get_is_hotplug(
                devinfo_rep: *const doca_devinfo_rep,
                is_hotplug: *mut u8
            ) -> doca_error_t;

            /// IPv6 address of the device's network interface, in network byte order; the link-local one.
            fn doca_devinfo_get_ipv6_addr(
                devinfo: *const doca_devinfo,
                ipv6_addr: *mut u8,
                size: u32
            ) -> doca_error_t;

            /// Local identifier of an InfiniBand port; emulated ports are Ethernet.
            fn doca_devinfo_get_lid(devinfo: *const doca_devinfo, lid: *mut u16) -> doca_error_t;

            /// Rate of the port in bits per second.
            fn doca_devinfo_get_active_rate(
                devinfo: *const doca_devinfo,
                active_rate: *mut u64
            ) -> doca_error_t;

            /// VHCA id of the device's function, unique within an adapter.
            fn doca_devinfo_get_vhca_id(
                devinfo: *const doca_devinfo,
                vhca_id: *mut u16
            ) -> doca_error_t;

            /// VHCA id of the represented function: that of the host's device.
            fn doca_devinfo_rep_get_vhca_id(
                devinfo_rep: *const doca_devinfo_rep,
                vhca_id: *mut u16
            ) -> doca_error_t;

            /// 1 if the device supports accelerated resource reclaim, otherwise 0.
            fn doca_devinfo_cap_is_accelerate_resource_reclaim_supported(
                devinfo: *const doca_devinfo,
                is_accelerate_resource_reclaim: *mut u8
            ) -> doca_error_t;

            /// Enables accelerated resource reclaim of a device.
            fn doca_dev_accelerate_resource_reclaim(dev: *mut doca_dev) -> doca_error_t;
        }
    };
}

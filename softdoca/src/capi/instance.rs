//! Functions that several libraries have alike: those of instances, of limits, and handles of tasks.

/// Ties kinds of tasks to the body that their pool allocates.
macro_rules! task_handles {
    ($body:ty: $($task:ty),+ $(,)?) => { $(
        // SAFETY: tasks of this kind are given out as pointers to what `TaskPool::allocate` made of this body.
        unsafe impl $crate::capi::Handle for $task {
            type Engine = $crate::progress::TaskOf<$body>;
        }
    )+ };
}
pub(super) use task_handles;

/// Defines the handle of a library's instance over an accelerator, its creation and its context; and its destruction, with the
/// error that is documented for an instance with allocated tasks.
macro_rules! instance_functions {
    (
        $instance:ident over $accelerator:ty;
        $create:ident, $as_ctx:ident $(, $destroy:ident($in_use:expr))?
    ) => {
        // SAFETY: instances are given out as pointers from `Rc::into_raw(Rc<Ctx>)`, as all contexts are.
        unsafe impl $crate::capi::Handle for $instance {
            type Engine = $crate::progress::Ctx;

            const KEEPER: $crate::capi::Keeper = $crate::capi::Keeper::Rc;
        }

        /// Creates an instance on a device.
        ///
        /// # Safety
        /// `dev` is NULL or an open device; `instance` is NULL or writable.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(
            dev: *mut doca_abi::doca_dev,
            instance: *mut *mut $instance,
        ) -> $crate::capi::doca_error_t {
            $crate::capi::guard(|| {
                $crate::capi::check_out(instance)?;
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let ctx = <$accelerator>::context($crate::capi::share(dev)?);
                    $crate::capi::put(instance, $crate::capi::doca_pe::give_ctx(ctx))
                }
            })
        }

        $(
            /// Destroys an idle instance, of which no tasks may be allocated.
            ///
            /// # Safety
            /// `instance` is NULL or a live instance; on success it is invalid afterwards.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $destroy(instance: *mut $instance) -> $crate::capi::doca_error_t {
                // SAFETY: guaranteed by the caller.
                $crate::capi::guard(|| unsafe {
                    $crate::capi::doca_pe::destroy_ctx(instance, $in_use)
                })
            }
        )?

        /// The instance's context.
        ///
        /// # Safety
        /// Safe for any pointer: it is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $as_ctx(instance: *mut $instance) -> *mut doca_abi::doca_ctx {
            instance.cast()
        }
    };
}
pub(super) use instance_functions;

/// Defines functions that write a limit that is the same for all devices, or for all instances.
macro_rules! limit_functions {
    ($($(#[doc = $doc:literal])+ $name:ident($object:ty) = $limit:expr, $number:ty;)+) => { $(
        $(#[doc = $doc])+
        ///
        /// # Safety
        /// `limit` is NULL or writable; the object is not dereferenced.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            object: $object,
            limit: *mut $number,
        ) -> $crate::capi::doca_error_t {
            // SAFETY: guaranteed by the caller.
            unsafe { $crate::capi::put_limit(object, limit, $limit as $number) }
        }
    )+ };
}
pub(super) use limit_functions;

//! Memory of the tests, which they share with those of the accelerators.

pub(super) use crate::capi::testing::{Bufs, Memory, Placement, c, device, import};

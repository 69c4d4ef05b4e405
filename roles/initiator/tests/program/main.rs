//! The program as a whole, against a scripted service. One binary, so that it is linked once.

mod failures;
mod interruptions;
mod runs;
mod support;

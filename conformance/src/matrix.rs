//! Every combination of implementations, in one deployment each.
//!
//! A [`Mix`] assigns an implementation to every role of a [`Layout`]; a [`Check`] is one session with it: the four
//! strategies of the initiator, two I/Os that fail, a corrupt block. [`Matrix::run`] starts the processes of a
//! session in a [`Sandbox`](deployment::sandbox::Sandbox), and compares their exit statuses, their statistics and
//! leftovers with the [`Expectation`] for this mix, which depends on the [`Traits`] of its members.

mod check;
mod content;
mod mix;
mod run;
mod session;
mod verdict;

pub use check::{Check, Expectation, Strategy};
pub use deployment::implementation::Layout;
pub use mix::{Interrupted, Member, Mix, Settings, Traits, mixes};
pub use run::{Matrix, Tried};

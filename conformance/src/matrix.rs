//! Every mix of implementations, in one deployment each.
//!
//! A [`Mix`] says whose program plays which part of a [`Layout`]; a [`Check`] is one session with it: the four strategies of
//! the initiator, two I/Os that fail, a block that is corrupt. [`Matrix::run`] starts the session's processes in a
//! [`Scene`](crate::scene::Scene) of their own, and compares how they ended, what they counted and what they left with the
//! [`Expectation`] for this mix, which depends on what is known of its members ([`Traits`]).

mod check;
mod content;
mod mix;
mod run;
mod session;
mod verdict;

pub use check::{Check, Expectation, Strategy};
pub use mix::{Interrupted, Layout, Member, Mix, Settings, Traits, mixes};
pub use run::{Matrix, Tried};

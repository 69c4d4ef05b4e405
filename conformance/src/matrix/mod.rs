//! Every mix of implementations, in one deployment each.
//!
//! A [`Mix`] says whose program plays which part of a [`Layout`]; a [`Check`] is one session with it: the four strategies of
//! the initiator, two I/Os that fail, a block that is corrupt. [`Matrix::run`] starts the session's processes in a
//! [`Scene`](crate::scene::Scene) of their own, and compares how they ended, what they counted and what they left with the
//! [`Expectation`] for this mix, which depends on what is known of its members ([`Traits`]).

mod check;
mod content;
mod expectation;
mod files;
mod member;
mod mix;
mod overstate;
mod run;
mod session;
mod settings;
mod statistics;
mod verdict;

pub use check::{Check, Strategy};
pub use expectation::Expectation;
pub use member::{Member, Traits};
pub use mix::{Layout, Mix, mixes};
pub use run::{Matrix, Tried};
pub use settings::{Interrupted, Settings};

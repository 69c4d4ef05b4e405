//! Faults in a deployment that is at work: roles that die or stop, connections that end or say what makes no sense.
//!
//! * [`Case`] is one fault: which role of which deployment gets which signal at which place of a session. [`run`] starts the deployment with
//!   real processes, goes to that place, does it, and looks at what becomes of the others, of the data, and of whoever comes next.
//! * [`relay`] is how it gets there: all that happens in a session passes the connection between service and target.

mod aftermath;
mod case;
pub mod relay;
mod stage;
mod sweep;

pub use case::{Case, Fault, Mode, Part, Phase};
pub use sweep::{Interrupted, Settings, Tried, run};

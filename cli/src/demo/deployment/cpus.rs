//! The CPUs of the roles.

use crate::demo::Error;

/// The CPUs that this process may use, shared out among the roles.
pub(super) struct Cpus(Vec<usize>);

impl Cpus {
    /// Those of this process's affinity mask.
    pub(super) fn allowed() -> Result<Self, Error> {
        let cpus = deployment::allowed_cpus().map_err(Error::io("ask for the allowed CPUs"))?;
        Ok(Self(cpus))
    }

    /// One for each worker of role number `role` in a session of so many `roles`. A pipeline of one worker each takes as
    /// many CPUs as there are roles; on fewer, the roles with high numbers share.
    pub(super) fn of(
        &self,
        role: usize,
        roles: usize,
        workers: u32,
    ) -> impl Iterator<Item = usize> + use<'_> {
        (0..workers as usize).map(move |worker| self.0[(worker * roles + role) % self.0.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_spread_over_the_cpus() {
        let cpus = Cpus(vec![4, 6]);
        let of = |role, roles, workers| cpus.of(role, roles, workers).collect::<Vec<_>>();
        assert_eq!(of(0, 3, 2), [4, 6]);
        assert_eq!(of(1, 3, 2), [6, 4]);
        assert_eq!(of(2, 3, 1), [4]);
        assert_eq!(of(4, 5, 2), [4, 6]);
    }
}

//! What the roles say about themselves when they end, in the reference's words, which are also ours.

const OPERATIONS: &str = "| Operation count:";
const RECOVERIES: &str = "| Recovery count:";
const CORRECTED: &str = "| Corrected half blocks of data_1:";

/// The numbers of a role, summed over its workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// I/Os, or operations of an initiator. `None` when the role did not say.
    pub(super) operations: Option<u64>,
    /// Blocks that a gga service read without one of the targets.
    pub(super) recoveries: Option<u64>,
    /// Half blocks of data_1 that a gga service found wrong, and corrected; the reference does not look.
    pub(super) corrected: Option<u64>,
}

impl Statistics {
    /// From what a role wrote to standard output.
    pub(super) fn parse(text: &str) -> Self {
        let sum = |key: &str| {
            text.lines()
                .filter_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
                .reduce(u64::saturating_add)
        };
        Self {
            operations: sum(OPERATIONS),
            recoveries: sum(RECOVERIES),
            corrected: sum(CORRECTED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_summed() {
        let text = "[DOCA] log\n| Core: 0\n| Operation count: 20\n| Recovery count: 3\n| PE hit rate: 1.0% (1:2)\n\
                    | Corrected half blocks of data_1: 2\n| Core: 1\n| Operation count: 5\n| Recovery count: 1\n";
        let parsed = Statistics::parse(text);
        assert_eq!(parsed.operations, Some(25));
        assert_eq!(parsed.recoveries, Some(4));
        assert_eq!(parsed.corrected, Some(2));
        assert_eq!(Statistics::parse("nothing"), Statistics::default());
    }
}

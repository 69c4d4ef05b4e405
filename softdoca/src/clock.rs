//! Clocks of emulated devices, which are clocks of the host, and host clocks.

use std::sync::Arc;

use doca_abi::{
    DOCA_CLOCK_HOST_COUNTER_CYCLES, DOCA_CLOCK_HOST_MONOTONIC, DOCA_CLOCK_HOST_MONOTONIC_RAW,
    DOCA_CLOCK_HOST_REAL_TIME, DOCA_CLOCK_NIC_FREE_RUNNING, DOCA_CLOCK_NIC_REAL_TIME,
};
use rustix::time::{ClockId, clock_gettime};

use crate::device::Device;
use crate::error::{Error, Result};

const NANOSECONDS: i128 = 1_000_000_000;

/// A clock of `DOCA_CLOCK_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// A kernel clock; `of_device` if a device exposes it as its own.
    Kernel { id: ClockId, of_device: bool },
    /// The CPU's cycle counter.
    Counter,
}

/// A reading: nanoseconds, or counter cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Nanoseconds(i128),
    Cycles(u64),
}

/// Reads clocks, and keeps the device open meanwhile.
pub(crate) struct Clocks {
    _device: Arc<Device>,
}

impl Clock {
    /// # Errors
    /// [`Error::NotSupported`] if there is no such clock, or it needs a DPA.
    pub(crate) fn from_number(number: u64) -> Result<Self> {
        let kernel = |id, of_device| Ok(Self::Kernel { id, of_device });
        match number {
            // A free-running clock is never adjusted; a real-time clock is.
            DOCA_CLOCK_NIC_FREE_RUNNING => kernel(ClockId::MonotonicRaw, true),
            DOCA_CLOCK_NIC_REAL_TIME => kernel(ClockId::Realtime, true),
            DOCA_CLOCK_HOST_REAL_TIME => kernel(ClockId::Realtime, false),
            DOCA_CLOCK_HOST_MONOTONIC => kernel(ClockId::Monotonic, false),
            DOCA_CLOCK_HOST_MONOTONIC_RAW => kernel(ClockId::MonotonicRaw, false),
            DOCA_CLOCK_HOST_COUNTER_CYCLES => Ok(Self::Counter),
            _ => Err(Error::NotSupported
                .because(format_args!("there is no clock {number:#x} in software"))),
        }
    }

    fn read(self) -> Reading {
        match self {
            Self::Kernel { id, .. } => {
                let time = clock_gettime(id);
                let seconds = i128::from(time.tv_sec) * NANOSECONDS;
                Reading::Nanoseconds(seconds + i128::from(time.tv_nsec))
            }
            Self::Counter => Reading::Cycles(counter()),
        }
    }
}

impl Reading {
    /// Seconds and nanoseconds; `None` for cycles.
    pub(crate) fn timespec(self) -> Option<(i64, i64)> {
        match self {
            Self::Cycles(_) => None,
            Self::Nanoseconds(all) => Some((
                i64::try_from(all.div_euclid(NANOSECONDS)).unwrap_or(i64::MAX),
                all.rem_euclid(NANOSECONDS) as i64,
            )),
        }
    }

    /// The midpoint of two readings of one clock, and its distance from either.
    fn between(self, later: Self) -> (Self, u64) {
        match (self, later) {
            (Self::Nanoseconds(begin), Self::Nanoseconds(end)) => {
                let half = ((end - begin).max(0) + 1) / 2;
                (
                    Self::Nanoseconds(begin + half),
                    u64::try_from(half).unwrap_or(u64::MAX),
                )
            }
            (Self::Cycles(begin), Self::Cycles(end)) => {
                let half = end.saturating_sub(begin).div_ceil(2);
                (Self::Cycles(begin + half), half)
            }
            // Unreachable: both readings are of one clock.
            _ => (self, 0),
        }
    }
}

impl Clocks {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { _device: device }
    }

    /// # Errors
    /// As [`Clock::from_number`].
    pub(crate) fn read(&self, clock: u64) -> Result<Reading> {
        Ok(Clock::from_number(clock)?.read())
    }

    /// Reads two clocks at the same moment. Returns both readings and the error bound of the first: it is read before
    /// and after the second, and half of the difference is the error.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if the second is not a device clock, otherwise as [`Clock::from_number`].
    pub(crate) fn read_both(&self, primary: u64, nic: u64) -> Result<(Reading, Reading, u64)> {
        let (primary, nic) = (Clock::from_number(primary)?, Clock::from_number(nic)?);
        if !matches!(
            nic,
            Clock::Kernel {
                of_device: true,
                ..
            }
        ) {
            return Err(
                Error::InvalidValue.because("the second of two clocks must be one of the device's")
            );
        }
        if primary == nic {
            let reading = nic.read();
            return Ok((reading, reading, 0));
        }
        let begin = primary.read();
        let middle = nic.read();
        let (moment, error) = begin.between(primary.read());
        Ok((moment, middle, error))
    }
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has the counter, and Linux allows processes to read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
fn counter() -> u64 {
    let counter;
    // SAFETY: reads the virtual counter, which Linux allows, and has no side effects.
    unsafe {
        std::arch::asm!("mrs {}, cntvct_el0", out(reg) counter, options(nomem, nostack, preserves_flags));
    }
    counter
}

#[cfg(test)]
mod tests {
    use doca_abi::DOCA_CLOCK_NIC_DPA_TIMER;

    use super::*;

    fn clocks() -> Clocks {
        Clocks::new(Device::open_by_name("mlx5_0").unwrap())
    }

    #[test]
    fn clocks_go_forward() {
        let clocks = clocks();
        for clock in [
            DOCA_CLOCK_NIC_FREE_RUNNING,
            DOCA_CLOCK_HOST_MONOTONIC,
            DOCA_CLOCK_HOST_MONOTONIC_RAW,
            DOCA_CLOCK_HOST_COUNTER_CYCLES,
        ] {
            let (first, second) = (clocks.read(clock).unwrap(), clocks.read(clock).unwrap());
            match (first, second) {
                (Reading::Nanoseconds(a), Reading::Nanoseconds(b)) => assert!(a <= b && a > 0),
                (Reading::Cycles(a), Reading::Cycles(b)) => assert!(a <= b && a > 0),
                other => panic!("{other:?}"),
            }
        }
        for none in [0, DOCA_CLOCK_NIC_DPA_TIMER, 3, 1 << 40] {
            assert_eq!(clocks.read(none), Err(Error::NotSupported));
        }
    }

    #[test]
    fn the_second_clock_is_read_between() {
        let clocks = clocks();
        let (host, nic, error) = clocks
            .read_both(DOCA_CLOCK_HOST_REAL_TIME, DOCA_CLOCK_NIC_REAL_TIME)
            .unwrap();
        let (Reading::Nanoseconds(host), Reading::Nanoseconds(nic)) = (host, nic) else {
            panic!("expected times");
        };
        // Both names refer to one clock, so the readings differ by at most the error.
        assert!((host - nic).unsigned_abs() <= u128::from(error) + 1);
        let same = clocks.read_both(DOCA_CLOCK_NIC_REAL_TIME, DOCA_CLOCK_NIC_REAL_TIME);
        let (one, other, error) = same.unwrap();
        assert_eq!((one, error), (other, 0));
        assert_eq!(
            clocks.read_both(DOCA_CLOCK_NIC_REAL_TIME, DOCA_CLOCK_HOST_REAL_TIME),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            clocks.read_both(DOCA_CLOCK_HOST_REAL_TIME, DOCA_CLOCK_NIC_DPA_TIMER),
            Err(Error::NotSupported)
        );
    }

    #[test]
    fn readings_split_into_seconds_and_nanoseconds() {
        assert_eq!(Reading::Nanoseconds(3_000_000_007).timespec(), Some((3, 7)));
        assert_eq!(Reading::Cycles(3).timespec(), None);
        let (moment, error) = Reading::Cycles(10).between(Reading::Cycles(15));
        assert_eq!((moment, error), (Reading::Cycles(13), 3));
    }
}

//! Required relations between measurements.

use serde::{Serialize, Serializer};

use super::{Exchanged, Limits, Measurement, OURS, Results, Subject, THEIRS, gga_limit, gga_point};
use crate::file::{BLOCK_SIZE, Work};
use crate::series::{
    AfterPause, BlockKernels, CpuTime, Figures, Layout, Operation, Point, Series, SystemCalls,
    median,
};

/// Direction of a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// The value must not be below the threshold.
    AtLeast,
    /// The value must not be above the threshold.
    AtMost,
}

/// A required relation between measurements.
#[derive(Debug, Clone)]
pub struct Threshold {
    /// Names of the compared quantities.
    pub name: String,
    /// The measured median; `None` without a measurement.
    pub value: Option<f64>,
    pub sense: Sense,
    pub limit: f64,
    /// Measurements that the value was computed from.
    pub detail: String,
}

impl Threshold {
    /// Returns `true` if the threshold holds; `None` if it was not measured.
    pub fn holds(&self) -> Option<bool> {
        self.value.map(|value| match self.sense {
            Sense::AtLeast => value >= self.limit,
            Sense::AtMost => value <= self.limit,
        })
    }
}

impl Serialize for Threshold {
    /// Includes the outcome, so that programs need not compare.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            name: &'a str,
            outcome: &'static str,
            value: Option<f64>,
            sense: Sense,
            limit: f64,
            detail: &'a str,
        }
        Document {
            name: &self.name,
            outcome: match self.holds() {
                Some(true) => "pass",
                Some(false) => "fail",
                None => "not measured",
            },
            value: self.value,
            sense: self.sense,
            limit: self.limit,
            detail: &self.detail,
        }
        .serialize(serializer)
    }
}

/// Rate of a bare ring, in I/Os per second, below which the machine is considered overloaded.
const RING_RATE: f64 = 1e6;
/// Rate of a bare TCP connection, in I/Os per second, below which the machine is considered overloaded.
const TCP_LEAST: f64 = 1e5;
/// Maximum number of system calls per I/O.
const SYSTEM_CALLS: f64 = 0.05;
/// Minimum rate of the first I/Os after a pause as a fraction of the rate without one, once the sleeping CPU has woken
/// up: another process on the path is woken up, and the caches are cold.
const FIRST_IOS: f64 = 0.8;
/// Threshold for "no slower": medians of a few runs on a shared machine are not more accurate.
const EVEN: f64 = 0.95;

/// Minimum fractions of fio's rates, for single blocks and for larger I/Os, and maximum ratio of a flush's latency to
/// that of fio's fdatasync.
const FILE_BLOCKS: f64 = 0.8;
const FILE_RUNS: f64 = 0.9;
const FLUSH: f64 = 1.3;

/// Returns `true` if the bare ring or the bare connection was measured, and its rate is too low.
pub(super) fn is_void(results: &Results) -> bool {
    let point = Point::ZERO_COPY_READ;
    let least = [
        (Subject::Ring { point }, RING_RATE),
        (Subject::BareTcp { point }, TCP_LEAST),
    ];
    least.into_iter().any(|(subject, least)| {
        let measured = results.of(&subject);
        let rate = measured.and_then(|one| one.series.median(|run| Some(run.rate)));
        rate.is_some_and(|rate| rate < least)
    })
}

pub fn thresholds(results: &Results) -> Vec<Threshold> {
    let rate = |run: &Figures| Some(run.rate);
    let bandwidth = |run: &Figures| Some(run.bandwidth);
    let p50 = |run: &Figures| run.latency.map(|latency| latency.p50_ns);
    let base = Point::ZERO_COPY_READ;
    let ours = |point| Subject::Deployment {
        point,
        mix: OURS.to_owned(),
    };
    let ratio = |own: &Subject, to: &Subject, of: &dyn Fn(&Figures) -> Option<f64>| {
        results.of(own)?.series.ratio(&results.of(to)?.series, of)
    };
    let figure = |subject: &Subject, of: &dyn Fn(&Figures) -> Option<f64>| {
        results.of(subject)?.series.median(of)
    };
    let detail = |own: &Subject,
                  to: &Subject,
                  of: &dyn Fn(&Figures) -> Option<f64>,
                  unit: f64,
                  name: &str| {
        match (figure(own, of), figure(to, of)) {
            (Some(own), Some(to)) => format!("{:.1} of {:.1} {name}", own / unit, to / unit),
            // Not measured, so no value.
            _ => String::new(),
        }
    };
    let at_least = |name: &str, value, limit, detail| Threshold {
        name: name.to_owned(),
        value,
        sense: Sense::AtLeast,
        limit,
        detail,
    };
    let at_most = |name: &str, value, limit, detail| Threshold {
        name: name.to_owned(),
        value,
        sense: Sense::AtMost,
        limit,
        detail,
    };

    let ring = Subject::Ring { point: base };
    let nbd = Subject::Nbd { point: base };
    let mut thresholds = vec![
        at_least(
            "the bare ring is fast enough to compare with (M I/Os a second)",
            figure(&ring, &rate).map(|rate| rate / 1e6),
            RING_RATE / 1e6,
            String::new(),
        ),
        at_least(
            &format!("{base}: of the bare ring"),
            ratio(&ours(base), &ring, &rate),
            0.5,
            detail(&ours(base), &ring, &rate, 1e3, "k I/Os a second"),
        ),
        at_least(
            &format!("{base}: of nbdkit's memory plugin under fio"),
            ratio(&ours(base), &nbd, &rate),
            3.0,
            detail(&ours(base), &nbd, &rate, 1e3, "k I/Os a second"),
        ),
    ];
    let single = Point {
        transactions: 1,
        ..base
    };
    let single_ring = Subject::Ring { point: single };
    thresholds.push(at_most(
        &format!("{single}: median latency of the bare ring's"),
        ratio(&ours(single), &single_ring, &p50),
        2.5,
        detail(&ours(single), &single_ring, &p50, 1e3, "us"),
    ));
    for block_size in [64 << 10, 1 << 20] {
        let point = Point { block_size, ..base };
        let copy = Subject::Copy { point };
        thresholds.push(at_least(
            &format!("{point}: of memcpy's bandwidth"),
            ratio(&ours(point), &copy, &bandwidth),
            0.8,
            detail(&ours(point), &copy, &bandwidth, f64::from(1 << 30), "GiB/s"),
        ));
    }
    for (title, more) in [
        (
            "256 transactions of 64",
            Point {
                transactions: 256,
                ..base
            },
        ),
        ("2 workers of 1", Point { workers: 2, ..base }),
    ] {
        let copy = |point| Subject::Copy { point };
        // A larger part of the initiator's memory is accessed, and may not fit into a cache.
        let copies = ratio(&copy(more), &copy(base), &rate)
            .map_or_else(String::new, |ratio| format!("; of memcpy alone {ratio:.2}"));
        let rates = detail(&ours(more), &ours(base), &rate, 1e3, "k I/Os a second");
        thresholds.push(at_least(
            &format!("{base}: rate with {title}"),
            ratio(&ours(more), &ours(base), &rate),
            EVEN,
            rates + &copies,
        ));
    }
    let (limits, cpus) = (limits(results), results.machine.cpus);
    for operation in [Operation::Read, Operation::RecoveryRead, Operation::Write] {
        let point = gga_point(operation);
        let limit = medians(&limits).map(|limits| gga_limit(limits, operation, cpus));
        let own = figure(&ours(point), &rate);
        // Round by round, because the limits of a noisy machine differ between rounds.
        let ratios = std::iter::zip(&limits, runs(results, &ours(point)))
            .map(|(&limits, own)| own.rate / gga_limit(limits, operation, cpus).rate);
        thresholds.push(at_least(
            &format!("{point}: of what kernels, copies and hops allow"),
            median(ratios.collect()),
            0.5,
            limit.map_or_else(String::new, |limit| {
                format!(
                    "{:.1} of {:.1} k I/Os a second; per I/O {:.0} ns LZ4, {:.0} ns parity, {:.0} ns copies, {:.0} ns hops",
                    own.unwrap_or_default() / 1e3,
                    limit.rate / 1e3,
                    limit.lz4_ns,
                    limit.parity_ns,
                    limit.service_copies_ns + limit.target_copies_ns,
                    limit.hops_ns
                )
            }),
        ));
    }
    let coding = results.kernels.ours.zip(results.kernels.isal);
    for (title, pick) in [("create", 0), ("recover", 1)] {
        let speeds = coding.map(|(ours, isal)| match pick {
            0 => (ours.create.bandwidth, isal.create.bandwidth),
            _ => (ours.recover.bandwidth, isal.recover.bandwidth),
        });
        thresholds.push(at_least(
            &format!("erasure coding, {title} of 32 KiB halves: of ISA-L"),
            speeds.map(|(ours, isal)| ours / isal),
            0.8,
            speeds.map_or_else(String::new, |(ours, isal)| {
                format!("{:.1} of {:.1} GB/s", ours / 1e9, isal / 1e9)
            }),
        ));
    }
    thresholds.push(at_most(
        "a started deployment without I/O: percent of one CPU, all processes",
        results.idle_percent,
        1.0,
        String::new(),
    ));
    thresholds.extend(files(results));
    thresholds.extend(front_ends(results));
    thresholds.extend(hosts(results));
    thresholds.extend(after_pauses(results));
    thresholds.extend(system_calls(results));
    thresholds.extend(twin_thresholds(results));
    thresholds
}

fn runs<'a>(results: &'a Results, subject: &Subject) -> &'a [Figures] {
    results
        .of(subject)
        .map_or(&[], |measurement| &measurement.series.runs)
}

/// Limits of each round.
fn limits(results: &Results) -> Vec<Limits> {
    let point = Point::ZERO_COPY_READ;
    let (ring, copies) = (Subject::Ring { point }, Subject::Copy { point });
    let rings = runs(results, &ring).iter();
    let others = runs(results, &copies)
        .iter()
        .zip(runs(results, &Subject::Kernels));
    let rounds = rings.zip(others).map_while(|(ring, (copies, kernels))| {
        Some(Limits {
            ring: ring.rate,
            copies: copies.rate,
            kernels: kernels.kernels?,
        })
    });
    rounds.collect()
}

fn medians(all: &[Limits]) -> Option<Limits> {
    let middle = |of: fn(&Limits) -> f64| median(all.iter().map(of).collect());
    Some(Limits {
        ring: middle(|limits| limits.ring)?,
        copies: middle(|limits| limits.copies)?,
        kernels: BlockKernels {
            compress_ns: middle(|limits| limits.kernels.compress_ns)?,
            decompress_ns: middle(|limits| limits.kernels.decompress_ns)?,
            create_ns: middle(|limits| limits.kernels.create_ns)?,
            recover_ns: middle(|limits| limits.kernels.recover_ns)?,
            check_ns: middle(|limits| limits.kernels.check_ns)?,
        },
    })
}

/// Thresholds for files compared with fio, if measured.
fn files(results: &Results) -> Vec<Threshold> {
    let threshold = |work: Work| {
        let ours = &results.of(&Subject::File { work })?.series;
        let fio = &results.of(&Subject::Fio { work })?.series;
        let rate = |run: &Figures| Some(run.rate);
        let p50 = |run: &Figures| run.latency.map(|latency| latency.p50_ns);
        let pair = |of: &dyn Fn(&Figures) -> Option<f64>, unit: f64| {
            let (ours, fio) = (ours.median(of)? / unit, fio.median(of)? / unit);
            Some(format!("{ours:.1} of {fio:.1}"))
        };
        Some(if work.flush {
            Threshold {
                name: format!("{work}: median latency of a flush, of fio's fdatasync"),
                value: ours.ratio(fio, p50),
                sense: Sense::AtMost,
                limit: FLUSH,
                detail: pair(&p50, 1e3).map_or_else(String::new, |text| text + " us"),
            }
        } else {
            Threshold {
                name: format!("{work}: of fio's io_uring engine"),
                value: ours.ratio(fio, rate),
                sense: Sense::AtLeast,
                limit: if work.point.block_size == BLOCK_SIZE {
                    FILE_BLOCKS
                } else {
                    FILE_RUNS
                },
                detail: pair(&rate, 1e3).map_or_else(String::new, |text| text + " k I/Os a second"),
            }
        })
    };
    Work::all().into_iter().filter_map(threshold).collect()
}

/// Minimum fractions of the rates of nbdkit's memory plugin for our NBD server, and of QEMU's null disk for our
/// vhost-user-blk back end: client and transport limit both.
const FRONT_END: f64 = 1.0;

/// Thresholds for our front ends compared with the usual software, if measured.
fn front_ends(results: &Results) -> Vec<Threshold> {
    let threshold = |name: String, ours: &Subject, theirs: &Subject| {
        let ours = &results.of(ours)?.series;
        let theirs = &results.of(theirs)?.series;
        let rate = |run: &Figures| Some(run.rate);
        let detail = ours.median(rate).zip(theirs.median(rate));
        Some(Threshold {
            name,
            value: ours.ratio(theirs, rate),
            sense: Sense::AtLeast,
            limit: FRONT_END,
            detail: detail.map_or_else(String::new, |(ours, theirs)| {
                format!("{:.1} of {:.1} k I/Os a second", ours / 1e3, theirs / 1e3)
            }),
        })
    };
    let nbd = crate::front_ends::nbd_points()
        .into_iter()
        .filter_map(|point| {
            threshold(
                format!("NBD server, {point}: of nbdkit's memory plugin"),
                &Subject::NbdServer { point },
                &Subject::Nbd { point },
            )
        });
    let disks = crate::front_ends::vhost_user_blk_points();
    let disks = disks.into_iter().filter_map(|point| {
        threshold(
            format!("vhost-user-blk, {point}: of qemu-storage-daemon's null disk"),
            &Subject::VhostUserBlk { point },
            &Subject::NullDisk { point },
        )
    });
    nbd.chain(disks).collect()
}

/// On two machines, limits relative to a bare TCP connection: rate, latency, and bandwidth of large blocks; and
/// relative to the rate of nbdkit over TCP.
const TCP_RATE: f64 = 0.6;
const TCP_LATENCY: f64 = 1.5;
const TCP_BANDWIDTH: f64 = 0.85;
const TCP_NBDKIT: f64 = 3.0;

/// A figure of a run.
type Figure<'a> = &'a dyn Fn(&Figures) -> Option<f64>;

/// Thresholds for a deployment on two machines compared with other programs on the same network, if measured.
fn hosts(results: &Results) -> Vec<Threshold> {
    let bars_of = |point: Point| {
        let ours = results.of(&Subject::Hosts { point })?;
        let rate = |run: &Figures| Some(run.rate);
        let bandwidth = |run: &Figures| Some(run.bandwidth);
        let p50 = |run: &Figures| run.latency.map(|latency| latency.p50_ns);
        let is_large = point.block_size > 4096;
        let threshold = |other: Subject, of: Figure<'_>, name: &str, sense, limit| {
            let other = &results.of(&other)?.series;
            let (unit, unit_name) = match sense {
                Sense::AtMost => (1e3, "us"),
                Sense::AtLeast if is_large => (f64::from(1 << 30), "GiB/s"),
                Sense::AtLeast => (1e3, "k I/Os a second"),
            };
            let detail = ours.series.median(of).zip(other.median(of));
            Some(Threshold {
                name: format!("2 hosts, {point}: {name}"),
                value: ours.series.ratio(other, of),
                sense,
                limit,
                detail: detail.map_or_else(String::new, |(ours, other)| {
                    format!("{:.2} of {:.2} {unit_name}", ours / unit, other / unit)
                }),
            })
        };
        let (bare, nbdkit) = (Subject::BareTcp { point }, Subject::NbdTcp { point });
        let (of, sense, limit, name): (Figure<'_>, _, _, _) = if point.transactions == 1 {
            (
                &p50,
                Sense::AtMost,
                TCP_LATENCY,
                "median latency of bare TCP's",
            )
        } else if is_large {
            (
                &bandwidth,
                Sense::AtLeast,
                TCP_BANDWIDTH,
                "of bare TCP's bandwidth",
            )
        } else {
            (&rate, Sense::AtLeast, TCP_RATE, "of bare TCP")
        };
        let nbd_figure: Figure<'_> = if is_large { &bandwidth } else { &rate };
        Some([
            threshold(bare, of, name, sense, limit),
            threshold(
                nbdkit,
                nbd_figure,
                "of nbdkit over TCP",
                Sense::AtLeast,
                TCP_NBDKIT,
            ),
        ])
    };
    let all = crate::series::network_points()
        .into_iter()
        .filter_map(bars_of);
    all.flatten().flatten().collect()
}

/// Thresholds for the first I/Os after a pause.
fn after_pauses(results: &Results) -> Vec<Threshold> {
    let point = Point::ZERO_COPY_READ;
    let wakes = runs(results, &Subject::WakeUp).iter();
    let rounds: Vec<(AfterPause, f64)> = runs(results, &Subject::FirstIos { point })
        .iter()
        .zip(wakes)
        .filter_map(|(run, wake)| Some((run.after_pause?, wake.wake_up_ns?)))
        .collect();
    let middle = |of: &dyn Fn(AfterPause, f64) -> f64| {
        median(rounds.iter().map(|&(p, w)| of(p, w)).collect())
    };
    let figures = || {
        Some(format!(
            "{:.0} us, {:.0} without a pause, waking up a CPU takes {:.0}; a single I/O {:.1} instead of {:.1} us",
            middle(&|paused, _| paused.first_time_ns())? / 1e3,
            middle(&|paused, _| paused.steady_time_ns())? / 1e3,
            middle(&|_, wake| wake)? / 1e3,
            middle(&|paused, _| paused.first_ns)? / 1e3,
            middle(&|paused, _| paused.steady_ns)? / 1e3,
        ))
    };
    vec![Threshold {
        name: format!(
            "{point}: the first {} I/Os after 2 s without any: of the speed in full work, after waking up one CPU",
            AfterPause::IOS
        ),
        value: middle(&|paused, wake| (paused.steady_time_ns() + wake) / paused.first_time_ns()),
        sense: Sense::AtLeast,
        limit: FIRST_IOS,
        detail: figures().unwrap_or_default(),
    }]
}

/// Thresholds for system calls per I/O: at each point where they were counted, or unmeasured for the first threshold's point.
fn system_calls(results: &Results) -> Vec<Threshold> {
    let threshold = |point: Point, runs: &[Figures]| {
        let middle = |of: &dyn Fn(SystemCalls) -> f64| {
            median(
                runs.iter()
                    .filter_map(|run| run.system_calls.map(of))
                    .collect(),
            )
        };
        let figures = || {
            Some(format!(
                "initiator {:.4}, service {:.4}, targets {:.4}; and {:.3} yields; counted by perf stat, start and end not counted",
                middle(&|calls| calls.initiator)?,
                middle(&|calls| calls.service)?,
                middle(&|calls| calls.targets)?,
                middle(&|calls| calls.yields)?,
            ))
        };
        Threshold {
            name: format!("{point}: system calls per I/O of all roles, without yields"),
            value: middle(&|calls| calls.total()),
            sense: Sense::AtMost,
            limit: SYSTEM_CALLS,
            detail: figures().unwrap_or_default(),
        }
    };
    let thresholds: Vec<_> = results
        .measurements
        .iter()
        .filter_map(|measurement| match measurement.subject {
            Subject::SystemCalls { point } => Some(threshold(point, &measurement.series.runs)),
            _ => None,
        })
        .collect();
    if thresholds.is_empty() {
        return vec![threshold(Point::ZERO_COPY_READ, &[])];
    }
    thresholds
}

// Each Rust role in place of its C++ counterpart, among C++ roles and among Rust roles.

/// Threshold for "no slower": medians of a few ratios on a shared machine are not more accurate.
const TWIN_EVEN: f64 = 0.97;

/// All thresholds for which there are measurements.
fn twin_thresholds(results: &Results) -> Vec<Threshold> {
    results
        .measurements
        .iter()
        .filter_map(|measurement| {
            let Subject::Deployment { point, mix } = &measurement.subject else {
                return None;
            };
            let exchanged = Exchanged::parse(mix)?;
            if !does_the_same(*point, exchanged) {
                return None;
            }
            let base = if exchanged.among_theirs { THEIRS } else { OURS };
            let base = results.of(&Subject::Deployment {
                point: *point,
                mix: base.to_owned(),
            })?;
            let (with_ours, with_theirs) = if exchanged.among_theirs {
                (measurement, base)
            } else {
                (base, measurement)
            };
            let mut pair = pair(*point, exchanged, with_ours, with_theirs);
            if checks(*point, exchanged) {
                let detail = beside_a_twin_that_checks(results, with_ours, with_theirs);
                pair[0].detail.extend(detail);
            }
            Some(pair)
        })
        .flatten()
        .collect()
}

/// Returns `true` if our role verifies data and its counterpart does not. Among our roles, the service's time does
/// not limit the rate.
fn checks(point: Point, exchanged: Exchanged) -> bool {
    let reads = point.layout == Layout::Gga && point.operation == Operation::Read;
    reads && exchanged.role == "service" && !exchanged.among_theirs
}

/// Our ratio to a hypothetical counterpart that verifies blocks as our service does; the verification time is measured
/// on an undisturbed CPU.
fn beside_a_twin_that_checks(
    results: &Results,
    ours: &Measurement,
    theirs: &Measurement,
) -> Option<String> {
    let check = results.of(&Subject::Kernels)?;
    let check_ns = check.series.median(|run| Some(run.kernels?.check_ns))?;
    let ratio = ours.series.ratio(&theirs.series, |run| Some(run.rate))?;
    let twin = theirs.series.median(|run| Some(run.rate))?;
    let with_checks = ratio * (1.0 + check_ns * twin / 1e9);
    Some(format!(
        "; {with_checks:.2} of a twin that checks blocks too, which takes {check_ns:.0} ns each at least"
    ))
}

/// Returns `true` if both roles do the same work. The reference's initiator writes memory that was never touched: all
/// zeros, which a compressing service handles almost for free. Ours writes less compressible data.
fn does_the_same(point: Point, exchanged: Exchanged) -> bool {
    let compresses = point.layout == Layout::Gga && point.operation == Operation::Write;
    !(compresses && exchanged.role == "initiator")
}

/// Thresholds for rate and CPU time of two deployments that differ in one role. They have no value if one of the
/// deployments has failed runs.
fn pair(
    point: Point,
    exchanged: Exchanged,
    ours: &Measurement,
    theirs: &Measurement,
) -> [Threshold; 2] {
    let failed = ours.failure.is_some() || theirs.failure.is_some();
    let is_complete = !failed && ours.series.runs.len() == theirs.series.runs.len();
    let measured = |value: Option<f64>| value.filter(|_| is_complete);
    let (ours, theirs) = (&ours.series, &theirs.series);
    let Exchanged { role, among_theirs } = exchanged;
    let among = if among_theirs { "C++" } else { "Rust" };
    let rate = |run: &Figures| Some(run.rate);
    let cpu = move |run: &Figures| -> Option<f64> {
        let CpuTime {
            initiator,
            service,
            targets,
        } = run.cpu_ns?;
        Some(match role {
            "initiator" => initiator,
            "service" => service,
            _ => targets,
        })
    };
    let medians = |of: &dyn Fn(&Figures) -> Option<f64>, unit: f64| {
        let median = |series: &Series| series.median(of).unwrap_or_default() / unit;
        (median(ours), median(theirs))
    };
    let (rates, cpus) = (medians(&rate, 1e3), medians(&cpu, 1e3));
    [
        Threshold {
            name: format!(
                "{point}, among {among} roles: rate with our {role}, of that with its C++ twin"
            ),
            value: measured(ours.ratio(theirs, rate)),
            sense: Sense::AtLeast,
            limit: TWIN_EVEN,
            detail: format!("{:.1} of {:.1} k I/Os a second", rates.0, rates.1),
        },
        Threshold {
            name: format!(
                "{point}, among {among} roles: CPU time per I/O of our {role}, of its C++ twin's"
            ),
            value: measured(ours.ratio(theirs, cpu)),
            sense: Sense::AtMost,
            limit: 1.0 / TWIN_EVEN,
            detail: format!("{:.2} of {:.2} us", cpus.0, cpus.1),
        },
    ]
}

#[cfg(test)]
mod twin_tests {
    use super::*;
    use crate::series::BlockKernels;

    /// Measurement of a deployment with these rates; the CPU times per I/O are multiples of the rate.
    fn measured(mix: &str, rates: &[f64]) -> Measurement {
        let figures = |rate: &f64| Figures {
            cpu_ns: Some(CpuTime {
                initiator: *rate,
                service: *rate * 2.0,
                targets: *rate * 3.0,
            }),
            ..Figures::of_rate(*rate, 4096)
        };
        Measurement {
            subject: Subject::Deployment {
                point: Point::ZERO_COPY_READ,
                mix: mix.to_owned(),
            },
            series: Series {
                runs: rates.iter().map(figures).collect(),
                ..Series::new(mix)
            },
            operations: 1,
            crashes: 0,
            failure: None,
        }
    }

    fn of(measurements: Vec<Measurement>) -> Vec<Threshold> {
        twin_thresholds(&Results::of_measurements(measurements))
    }

    #[test]
    fn our_role_is_compared_with_its_twin() {
        // Ours is twice as fast: the deployment of their roles with ours exchanged in, and vice versa.
        let measurements = vec![
            measured("cpp", &[100.0, 10.0, 100.0]),
            measured("cpp + rust service", &[200.0, 20.0, 200.0]),
            measured("rust", &[200.0, 20.0, 200.0]),
            measured("rust + cpp target", &[100.0, 10.0, 100.0]),
        ];
        let twin_thresholds = of(measurements);
        let values: Vec<_> = twin_thresholds
            .iter()
            .map(|threshold| (threshold.value, threshold.holds()))
            .collect();
        let twice = [(Some(2.0), Some(true)), (Some(2.0), Some(false))];
        assert_eq!(values, [twice, twice].concat());
        assert!(
            twin_thresholds[0]
                .name
                .contains("among C++ roles: rate with our service")
        );
        assert!(
            twin_thresholds[1].detail.contains("0.40 of 0.20 us"),
            "{}",
            twin_thresholds[1].detail
        );
        assert!(
            twin_thresholds[2]
                .name
                .contains("among Rust roles: rate with our target")
        );
        assert!(
            twin_thresholds[3].detail.contains("0.60 of 0.30 us"),
            "{}",
            twin_thresholds[3].detail
        );
    }

    #[test]
    fn initiators_are_not_compared_for_compressed_writes() {
        for (layout, operation, compared) in [
            (Layout::Gga, Operation::Write, false),
            (Layout::Gga, Operation::Read, true),
            (Layout::ZeroCopy, Operation::Write, true),
        ] {
            for (role, expected) in [("initiator", compared), ("service", true)] {
                let point = Point {
                    layout,
                    operation,
                    ..Point::ZERO_COPY_READ
                };
                let deployment = |mix: &str| Measurement {
                    subject: Subject::Deployment {
                        point,
                        mix: mix.to_owned(),
                    },
                    ..measured(mix, &[100.0])
                };
                let exchanged = deployment(&format!("rust + cpp {role}"));
                let twin_thresholds = of(vec![deployment("rust"), exchanged]);
                assert_eq!(!twin_thresholds.is_empty(), expected, "{point}, {role}");
            }
        }
    }

    #[test]
    fn failed_deployment_has_no_value() {
        let ours = || measured("rust", &[200.0, 200.0, 200.0]);
        let twin = |rates: &[f64]| measured("rust + cpp target", rates);
        let crashed = Measurement {
            failure: Some("signal: 11".to_owned()),
            ..twin(&[100.0, 100.0, 100.0])
        };
        // Interrupted: not a failure, but fewer rounds.
        for incomplete in [crashed, twin(&[100.0]), twin(&[])] {
            let twin_thresholds = of(vec![ours(), incomplete]);
            let holds: Vec<_> = twin_thresholds.iter().map(Threshold::holds).collect();
            assert_eq!(holds, [None, None]);
        }
    }

    #[test]
    fn verifying_service_is_also_compared_with_a_verifying_twin() {
        let point = |operation| Point {
            layout: Layout::Gga,
            operation,
            ..Point::ZERO_COPY_READ
        };
        let deployment = |mix: &str, operation, rate: f64| Measurement {
            subject: Subject::Deployment {
                point: point(operation),
                mix: mix.to_owned(),
            },
            ..measured(mix, &[rate])
        };
        let kernels = || Measurement {
            subject: Subject::Kernels,
            series: Series {
                runs: vec![Figures {
                    kernels: Some(BlockKernels {
                        compress_ns: 1.0,
                        decompress_ns: 1.0,
                        create_ns: 1.0,
                        recover_ns: 1.0,
                        check_ns: 500.0,
                    }),
                    ..Figures::without_rate()
                }],
                ..Series::new("kernels")
            },
            ..measured("kernels", &[])
        };
        let detail_of = |operation, role: &str, kernels: Vec<Measurement>| {
            let mut all = kernels;
            all.push(deployment("rust", operation, 4e5));
            all.push(deployment(&format!("rust + cpp {role}"), operation, 5e5));
            of(all)[0].detail.clone()
        };
        // The counterpart's 2 us would be 2.5 us with verification.
        let detail = detail_of(Operation::Read, "service", vec![kernels()]);
        assert!(
            detail.ends_with(
                "; 1.00 of a twin that checks blocks too, which takes 500 ns each at least"
            ),
            "{detail}"
        );
        for other in [
            detail_of(Operation::Read, "service", vec![]),
            detail_of(Operation::Read, "target", vec![kernels()]),
            detail_of(Operation::Write, "service", vec![kernels()]),
        ] {
            assert!(other.ends_with("k I/Os a second"), "{other}");
        }
    }

    #[test]
    fn missing_deployment_has_no_bar() {
        assert!(of(vec![measured("cpp + rust service", &[1.0])]).is_empty());
        assert!(of(vec![measured("cpp", &[1.0]), measured("rust", &[1.0])]).is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;
    use crate::suite::Measurement;

    fn measured(subject: Subject, runs: &[Figures]) -> Measurement {
        Measurement {
            series: Series {
                runs: runs.to_vec(),
                ..Series::new(subject.to_string())
            },
            subject,
            operations: 1,
            crashes: 0,
            failure: None,
        }
    }

    fn value_of(name: &str, measurements: Vec<Measurement>) -> Option<f64> {
        let mut results = Results::of_measurements(measurements);
        results.machine.cpus = 2;
        let threshold = thresholds(&results)
            .into_iter()
            .find(|threshold| threshold.name.contains(name));
        threshold
            .unwrap_or_else(|| panic!("there is no threshold {name:?}"))
            .value
    }

    #[test]
    fn gga_is_compared_with_the_limit_of_the_same_round() {
        let point = Point::ZERO_COPY_READ;
        // During rounds 2 and 3, another process uses most of the machine.
        let slower = [1.0, 4.0, 5.0];
        let of_rate = |rate: f64| slower.map(|by| Figures::of_rate(rate / by, 4096));
        let kernels = slower.map(|by| Figures {
            kernels: Some(BlockKernels {
                compress_ns: 8000.0 * by,
                decompress_ns: 1500.0 * by,
                create_ns: 100.0 * by,
                recover_ns: 500.0 * by,
                check_ns: 200.0 * by,
            }),
            ..Figures::without_rate()
        });
        let own = Subject::Deployment {
            point: gga_point(Operation::RecoveryRead),
            mix: OURS.to_owned(),
        };
        let measurements = |own_rates: &[Figures]| {
            vec![
                measured(Subject::Ring { point }, &of_rate(1e6)),
                measured(Subject::Copy { point }, &of_rate(4e6)),
                measured(Subject::Kernels, &kernels),
                measured(own.clone(), own_rates),
            ]
        };
        let name = "gga recovery read 4 KiB x64: of what";
        // The service: 2000 for kernels, 500 for copies, 3 hops of (2 us - 250) / 4; the two CPUs together have less work.
        let limit = 1e9 / (2000.0 + 500.0 + 3.0 * 437.5);
        let value = value_of(name, measurements(&of_rate(limit / 2.0))).expect("measured");
        assert!((value - 0.5).abs() < 1e-9, "{value}");
        assert_eq!(value_of(name, measurements(&[])), None);
    }

    #[test]
    fn wake_up_time_is_allowed_for() {
        let point = Point::ZERO_COPY_READ;
        let paused = |first_rate| Figures {
            after_pause: Some(AfterPause {
                pause_seconds: 2.0,
                first_rate,
                steady_rate: 1e6,
                first_ns: 1e5,
                steady_ns: 1e4,
            }),
            ..Figures::without_rate()
        };
        let wake = |nanoseconds| Figures {
            wake_up_ns: Some(nanoseconds),
            ..Figures::without_rate()
        };
        let value = |first_rate, wake_up| {
            let mut measurements =
                vec![measured(Subject::FirstIos { point }, &[paused(first_rate)])];
            if let Some(nanoseconds) = wake_up {
                measurements.push(measured(Subject::WakeUp, &[wake(nanoseconds)]));
            }
            value_of("I/Os after 2 s", measurements)
        };
        // 1000 I/Os in 2 ms instead of 1 ms.
        assert_eq!(value(5e5, Some(0.0)), Some(0.5));
        assert_eq!(value(5e5, Some(6e5)), Some(0.8));
        assert_eq!(value(5e5, None), None, "it is not known what to expect");
    }

    #[test]
    fn two_hosts_are_compared_with_bare_tcp_and_nbdkit() {
        let [base, single, large, _] = crate::series::network_points();
        let of = |point: Point, rate: f64, p50_ns: f64| Figures {
            latency: Some(crate::series::Latency {
                p50_ns,
                p99_ns: p50_ns,
                p99_9_ns: p50_ns,
                distribution: None,
            }),
            ..Figures::of_rate(rate, point.block_size)
        };
        let at = |point: Point, rates: [f64; 3], times: [f64; 3]| {
            let subjects = [
                Subject::BareTcp { point },
                Subject::Hosts { point },
                Subject::NbdTcp { point },
            ];
            let measured = |index: usize| {
                let run = of(point, rates[index], times[index]);
                measured(subjects[index].clone(), &[run])
            };
            [0, 1, 2].map(measured)
        };
        let measurements = [
            at(base, [4e5, 3e5, 5e4], [1e5; 3]),
            at(single, [4e4, 2e4, 1e4], [2e4, 5e4, 4e4]),
            at(large, [1e4, 9e3, 9e3], [1e6; 3]),
        ];
        let results = Results::of_measurements(measurements.concat());
        let hosts = hosts(&results);
        let found: Vec<_> = hosts
            .iter()
            .map(|threshold| (threshold.value, threshold.holds()))
            .collect();
        let expected = [
            (Some(0.75), Some(true)),
            (Some(6.0), Some(true)),
            (Some(2.5), Some(false)),
            (Some(2.0), Some(false)),
            (Some(0.9), Some(true)),
            (Some(1.0), Some(false)),
        ];
        assert_eq!(found, expected);
        assert!(!is_void(&results));
        let slow = at(base, [9e4, 3e5, 5e4], [1e5; 3]).to_vec();
        assert!(is_void(&Results::of_measurements(slow)));
    }
}

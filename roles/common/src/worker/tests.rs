use std::rc::Rc;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A data path with a handle that must not leave its thread, as DOCA's handles.
struct Echo {
    calls: Rc<u32>,
    dropped: Sender<()>,
}

enum Command {
    Double(u32),
    Fail,
    Panic,
    Sleep(Duration),
    FailRun,
}

impl DataPath for Echo {
    type Command = Command;
    type Reply = u32;
    type Report = u32;

    fn execute(&mut self, command: Command) -> Result<u32, Failure> {
        match command {
            Command::Double(number) => Ok(number * 2),
            Command::Fail => Err(Failure::invalid("asked to fail")),
            Command::Panic => panic!("asked to panic"),
            Command::Sleep(time) => {
                std::thread::sleep(time);
                Ok(0)
            }
            Command::FailRun => {
                self.calls = Rc::new(u32::MAX);
                Ok(0)
            }
        }
    }

    fn run(&mut self, run: &RunFlag) -> Result<u32, Failure> {
        if *self.calls == u32::MAX {
            return Err(Failure::invalid("the run failed"));
        }
        while run.is_set() {
            std::thread::yield_now();
        }
        self.calls = Rc::new(*self.calls + 1);
        Ok(*self.calls)
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.dropped.send(());
    }
}

fn cpu() -> u32 {
    let cpus = rustix::thread::sched_getaffinity(None).expect("affinity");
    (0..1024)
        .find(|&cpu| cpus.is_set(cpu as usize))
        .expect("a CPU")
}

fn worker() -> (Worker<Echo>, Receiver<()>, Waker) {
    let (dropped, was_dropped) = channel();
    let waker = Waker::new().expect("pipe");
    let create = move || {
        Ok(Echo {
            calls: Rc::new(0),
            dropped,
        })
    };
    (
        Worker::spawn(0, cpu(), waker.clone(), TIMEOUT, create).expect("spawned"),
        was_dropped,
        waker,
    )
}

#[test]
fn worker_takes_commands_before_and_after_a_run() {
    let (mut worker, dropped, _) = worker();
    assert_eq!(worker.execute(Command::Double(4), TIMEOUT), Ok(8));
    assert!(
        worker
            .execute(Command::Fail, TIMEOUT)
            .expect_err("fails")
            .message
            .contains("asked to fail")
    );
    for run in 1..=2 {
        worker.start().expect("started");
        assert!(
            worker.execute(Command::Double(1), TIMEOUT).is_err(),
            "it runs"
        );
        assert_eq!(worker.poll(), Ok(None));
        assert_eq!(worker.stop(TIMEOUT), Ok(run));
        assert!(worker.stop(TIMEOUT).is_err(), "it runs no more");
    }
    assert_eq!(worker.execute(Command::Double(5), TIMEOUT), Ok(10));
    drop(worker);
    assert_eq!(
        dropped.try_recv(),
        Ok(()),
        "the data path is gone when the worker is"
    );
}

#[test]
fn failed_run_is_reported_without_a_stop() {
    let (mut worker, _, waker) = worker();
    worker.execute(Command::FailRun, TIMEOUT).expect("prepared");
    waker.clear();
    worker.start().expect("started");
    let deadline = Instant::now() + TIMEOUT;
    let failure = loop {
        match worker.poll() {
            Ok(None) => assert!(Instant::now() < deadline, "no outcome"),
            Ok(Some(report)) => panic!("unexpected report {report}"),
            Err(failure) => break failure,
        }
        std::thread::yield_now();
    };
    assert!(
        failure.message.contains("worker 0") && failure.message.contains("the run failed"),
        "{failure}"
    );
    assert_eq!(
        worker.execute(Command::Double(1), TIMEOUT),
        Ok(2),
        "it still takes commands"
    );
}

#[test]
fn panic_is_reported_and_wakes_the_main_thread() {
    let (mut worker, dropped, _) = worker();
    let failure = worker
        .execute(Command::Panic, TIMEOUT)
        .expect_err("panicked");
    assert!(failure.message.contains("asked to panic"), "{failure}");
    assert_eq!(dropped.try_recv(), Ok(()));
    assert!(worker.start().is_err());
    assert!(worker.poll().is_err());
}

#[test]
fn waiting_for_a_worker_times_out() {
    let (mut worker, dropped, _) = worker();
    let failure = worker
        .execute(
            Command::Sleep(Duration::from_millis(200)),
            Duration::from_millis(1),
        )
        .expect_err("too slow");
    assert_eq!(failure.code, ErrorCode::TIME_OUT);
    assert!(
        worker.execute(Command::Double(1), TIMEOUT).is_err(),
        "a late answer is not mistaken for this one's"
    );
    drop(worker);
    assert_eq!(dropped.try_recv(), Ok(()));
}

#[test]
fn failed_creation_and_missing_cpu_are_errors() {
    let waker = Waker::new().expect("pipe");
    let create = || -> Result<Echo, Failure> { Err(Failure::invalid("no memory")) };
    let failure = Worker::spawn(3, cpu(), waker.clone(), TIMEOUT, create).expect_err("fails");
    assert!(
        failure.message.contains("worker 3") && failure.message.contains("no memory"),
        "{failure}"
    );
    let create = || -> Result<Echo, Failure> { Err(Failure::invalid("never called")) };
    let failure = Worker::spawn(0, 100_000, waker, TIMEOUT, create).expect_err("fails");
    assert!(failure.message.contains("--cpu 100000"), "{failure}");
}

#[test]
fn dropping_a_running_worker_stops_it() {
    let (mut worker, dropped, _) = worker();
    worker.start().expect("started");
    drop(worker);
    assert_eq!(dropped.try_recv(), Ok(()));
}

/// Waits for a worker's next answer.
fn answer(worker: &mut Worker<Echo>) -> Result<Answer<Echo>, Failure> {
    loop {
        if let Some(answer) = worker.answer(Instant::now())? {
            return Ok(answer);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn answers_are_polled_without_blocking() {
    let (mut worker, _, _) = worker();
    assert!(worker.answer(Instant::now()).expect("idle").is_none());
    worker.begin(Command::Double(4), TIMEOUT).expect("begun");
    assert!(worker.is_pending() && worker.deadline().is_some());
    assert!(matches!(answer(&mut worker), Ok(Answer::Replied(8))));
    assert!(worker.begin_stop(TIMEOUT).is_err(), "it does not run");
    worker.start().expect("started");
    worker.begin_stop(TIMEOUT).expect("it runs");
    assert!(matches!(answer(&mut worker), Ok(Answer::Stopped(1))));
    let sleep = Command::Sleep(Duration::from_millis(200));
    worker
        .begin(sleep, Duration::from_millis(1))
        .expect("begun");
    let failure = answer(&mut worker).err().expect("too late");
    assert_eq!(failure.code, ErrorCode::TIME_OUT);
    assert!(
        worker.begin(Command::Double(1), TIMEOUT).is_err(),
        "its late reply would be taken for this one's"
    );
}

#[test]
fn time_without_a_cpu_extends_the_deadline() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let seconds = Duration::from_secs;
    let mut pending = Pending {
        what: "it",
        deadline: Deadline::new(start, seconds(4)),
        delay: seconds(10),
        last: at(64),
    };
    let mut check = |now, delay: Option<Duration>| {
        pending
            .check(now, || delay, format_args!("it"))
            .map(|()| pending.deadline.at())
    };
    assert_eq!(check(at(3), None), Ok(at(4)), "not asked for");
    assert_eq!(check(at(4), Some(seconds(13))), Ok(at(7)), "3 s of it");
    assert_eq!(check(at(7), None), Ok(at(8)), "it has not run yet");
    let late = check(at(8), Some(seconds(14))).expect_err("it sleeps");
    assert_eq!(late.code, ErrorCode::TIME_OUT);
    let late = check(at(64), Some(seconds(1000))).expect_err("for too long");
    assert_eq!(late.code, ErrorCode::TIME_OUT);
}

#[test]
fn run_queue_delay_is_read_from_the_kernel() {
    let (worker, _, _) = worker();
    assert!(run_queue_delay(&worker.tid).is_some());
    assert_eq!(run_queue_delay(&AtomicI32::new(0)), None);
}

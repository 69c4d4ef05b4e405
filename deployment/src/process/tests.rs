use super::*;

fn shell(script: &str) -> Process {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    Process::spawn("target", command).expect("a shell")
}

fn default_deadline() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

#[test]
fn output_and_lines_are_captured() {
    let mut process = shell("echo ready on 17 >&2; echo result");
    let port = process.wait_for("said its port", Duration::from_secs(10), |line| {
        line.strip_prefix("ready on ").map(str::to_owned)
    });
    assert_eq!(port.expect("the line"), "17");
    assert_eq!(
        process
            .finish(default_deadline(), || false)
            .expect("success"),
        "result\n"
    );
}

#[test]
fn lines_are_found_from_a_position_and_logged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo one >&2; echo two >&2; echo one >&2; read line"]);
    let log = File::create(&path).expect("a file");
    let process = Process::spawn_logged("target", command, log).expect("a shell");
    let one = |line: &str| (line == "one").then_some(());
    let long = Duration::from_secs(10);
    assert_eq!(process.find_line(1, long, one), Some(()));
    assert_eq!(process.line_count(), 3);
    process.wait_for_end(default_deadline());
    assert!(process.is_over());
    assert_eq!(process.find_line(3, long, one), None);
    let log = std::fs::read_to_string(&path).expect("a log");
    assert_eq!(log, "one\ntwo\none\n");
}

#[test]
fn failure_contains_the_output_of_the_role() {
    let failure = shell("echo the reason >&2; exit 3")
        .finish(default_deadline(), || false)
        .expect_err("fails");
    let text = failure.to_string();
    assert!(
        text.contains("target: failed") && text.contains("the reason"),
        "{text}"
    );
    let mut process = shell("exit 0");
    let failure = process
        .wait_for("was ready", Duration::from_secs(10), |_| None::<()>)
        .expect_err("ends");
    assert!(
        failure.to_string().contains("before it was ready"),
        "{failure}"
    );
}

#[test]
fn all_output_is_captured_after_exit() {
    let mut process = shell("echo result; echo reason >&2; exit 3");
    assert_eq!(
        process
            .wait(default_deadline())
            .and_then(|status| status.code()),
        Some(3)
    );
    let output = process.into_output();
    assert_eq!(output, ("result\n".to_owned(), "reason\n".to_owned()));
}

#[test]
fn cpu_time_is_available_until_the_exit_status_is_taken() {
    let process = shell("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done");
    process.wait_for_end(default_deadline());
    assert!(process.cpu_time() > Some(Duration::ZERO));
    assert!(process.has_ended());
    assert!(process.cpu_time() > Some(Duration::ZERO), "not reaped yet");
    let mut process = process;
    assert!(process.status().is_some());
    assert_eq!(process.cpu_time(), None);
}

#[test]
fn dropped_process_is_killed() {
    let process = shell("exec sleep 1000");
    let pid = process.pid().expect("a pid");
    drop(process);
    assert!(rustix::process::test_kill_process(pid).is_err());
}

//! Every command on a terminal: no line of a recording is wider than the terminal.
//!
//! `script` (of util-linux) records. Machine-readable output is excepted: JSON, Markdown, shell commands.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use crate::support::gga::TARGETS;
use crate::support::{PROGRAM, Sandbox, TIMEOUT, default_deadline, mentions, text, waiting};
use deployment::log::{LogEvent, listening_port};
use deployment::process::Process;

/// Widths of terminals in columns.
const WIDTHS: [usize; 3] = [80, 100, 120];

/// Runs a command on a terminal of `width` columns.
fn on_terminal(command: &Command, width: usize) -> Command {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<&str> = words.map(|word| word.to_str().expect("text")).collect();
    let line = shlex::try_join(words).expect("no NUL");
    let mut recorded = Command::new("script");
    recorded
        .args(["--quiet", "--flush", "--return", "--command"])
        .arg(format!("stty cols {width} rows 50 && exec {line}"))
        .arg("/dev/null")
        .envs(
            command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("TERM", "xterm-256color")
        .env_remove("COLUMNS")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null());
    recorded
}

/// Lines as displayed, without escape sequences. A redrawn line counts again.
fn lines(recording: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut characters = recording.chars();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            plain.push(character);
        } else if characters.next() == Some('[') {
            // Parameters, and the letter that ends the sequence.
            let end = characters.find(|it| ('\u{40}'..='\u{7e}').contains(it));
            if end.is_some_and(|it| it != 'm') {
                plain.push('\r');
            }
        }
    }
    plain.split(['\n', '\r']).map(str::to_owned).collect()
}

fn fits(recording: &str, width: usize, arguments: &[&str]) {
    assert!(!recording.trim().is_empty(), "{arguments:?}: nothing");
    for line in lines(recording) {
        let columns = line.chars().count();
        // A word that is longer than a line, such as a path, is not broken.
        let is_word = !line.trim().contains(' ');
        assert!(
            columns <= width || is_word,
            "{arguments:?}: {columns} of {width} columns: {line}"
        );
    }
}

/// Runs the command on a terminal, checks its lines, and returns its exit code and output.
fn record(sandbox: &Sandbox, arguments: &[&str], width: usize) -> (Option<i32>, String) {
    let output = on_terminal(&sandbox.command(arguments), width)
        .output()
        .expect("script (of util-linux) is installed");
    assert!(output.stderr.is_empty(), "{output:?}");
    let recording = String::from_utf8(output.stdout).expect("text");
    fits(&recording, width, arguments);
    (output.status.code(), recording)
}

#[test]
fn lines_are_told_apart() {
    let recording = "\u{1b}[1mbold\u{1b}[0m text\r\n\u{1b}[2K\rone\rtwo\u{1b}[1Bthree";
    let shown: Vec<_> = lines(recording)
        .into_iter()
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(shown, ["bold text", "one", "two", "three"]);
}

#[test]
fn short_commands_fit() {
    let sandbox = Sandbox::new();
    let nowhere = sandbox.path("nowhere");
    let nowhere = text(&nowhere);
    let reference = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../conformance/transcripts/gga_offload_reference.transcript"
    );
    let recorded = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../conformance/transcripts/zero_copy.transcript"
    );
    let program = PROGRAM;
    let service = "gga-offload -d 03:00.0 -r 3b:00.0 --cpu 0";
    // Header of a library for x86-64.
    let mut header = [0; 64];
    header[..6].copy_from_slice(b"\x7fELF\x02\x01");
    header[18] = 62;
    let library = sandbox.file("library.so", &header);
    let library = text(&library);
    let [prefix, nvidia, plain] = ["prefix", "nvidia", "plain"].map(|name| sandbox.path(name));
    let [prefix, nvidia] = [text(&prefix), text(&nvidia)];
    std::fs::write(&plain, vec![b'a'; 65536]).expect("written");
    let generator = format!(
        "sbc-generator -d 03:00.0 --original-input-data {0} --block-size 4096 --data-1 {0}.1 --data-2 {0}.2 --data-p {0}.p",
        text(&plain)
    );
    let list = [
        (0, "--help"),
        (0, "help target"),
        (0, "help zero-copy"),
        (0, "help gga-offload"),
        (0, "help initiator"),
        (0, "help sbc-generator"),
        (0, "help nbd"),
        (0, "help vhost-user-blk"),
        (0, "bench --help"),
        (0, "conformance matrix --help"),
        (0, "conformance replay --help"),
        (0, "status --help"),
        (0, "top --help"),
        (0, "sdk install --help"),
        (0, "sdk migrate --help"),
        (
            0,
            &format!("sdk install --prefix {prefix} --library {library}"),
        ),
        (
            0,
            &format!("sdk install --prefix {nvidia} --library {library} --layout nvidia"),
        ),
        (0, &generator),
        (
            0,
            &format!(
                "conformance replay {recorded} --bin {program} -- -d 3b:00.0 --cpu 0 --block-count 16"
            ),
        ),
        (0, "--version"),
        (0, "target --version"),
        (0, "conformance layout"),
        (0, "conformance layout --print"),
        (0, "conformance role target --list"),
        (0, "conformance role zero-copy --list"),
        (0, "conformance role gga-offload --list"),
        (0, "conformance role initiator --list"),
        (0, "conformance hostile --role gga-offload --list"),
        (0, "conformance faults --list"),
        (0, &format!("conformance show {reference}")),
        (0, &format!("conformance show {reference} --hex")),
        (0, "sdk devices"),
        // Errors.
        (1, "status 1 2"),
        (
            1,
            &format!("conformance replay {recorded} --to 127.0.0.1:1"),
        ),
        (
            1,
            &format!("conformance replay {recorded} --against service --session-timeout 1"),
        ),
        (
            1,
            "conformance record --listen 0 --to 127.0.0.1:1 --output /no/such/directory/session.transcript",
        ),
        (
            1,
            &format!("sdk install --prefix {prefix} --library {nowhere}/libsoftdoca_shared.so"),
        ),
        (
            1,
            "conformance show /no/such/directory/and/no/such/file/either.transcript",
        ),
        (1, &format!("sdk env --prefix {nowhere}")),
        (1, &format!("bench --compare cpp={nowhere}")),
        (1, &format!("bench --report {nowhere}/page.html")),
        (1, &format!("conformance matrix --impl cpp={nowhere}")),
        (1, &format!("conformance role target --bin {nowhere}")),
        (1, "target -d 09:00.0 --cpu 0 --listen-port 0"),
        (
            1,
            "zero-copy -d 03:00.0 -r 3b:00.0 --cpu 0 --storage-server no-such-host.invalid:1 --control-timeout 1",
        ),
        (
            1,
            "vhost-user-blk -d 3b:00.0 --socket /no/such/directory/socket",
        ),
        (
            1,
            "initiator -d 3b:00.0 --cpu 0 --execution-strategy read_throughput_test --control-timeout 1",
        ),
        (1, "nbd -d 3b:00.0 --cpu 0 --listen no-such-host.invalid:0"),
        (1, "conformance replay /no/such/file --to 127.0.0.1:1"),
        // Violation usage.
        (2, "--nonsense"),
        (2, "status nonsense"),
        (2, "conformance hammer --duration soon"),
        (2, "conformance layout --only nonsense"),
        (2, "conformance role gga-offload --only no-such-check"),
        (2, "conformance hostile --role target --only nonsense"),
        (2, "conformance faults --only nonsense"),
        (2, "bench --only nonsense"),
        (2, "demo --local-io-region-size 100 --workers 3"),
        (2, "target --nonsense"),
        (2, "initiator"),
        (2, "nbd -d 3b:00.0 --cpu 0 --listen 0.0.0.0:0"),
        (2, "nbd -d 3b:00.0 --cpu 0 --listen nowhere"),
        (
            2,
            "nbd -d 3b:00.0 -d 3b:00.0 --command-channel-name x --cpu 0 --socket x",
        ),
        (2, &format!("{service} --data-1-storage x")),
        (2, "sdk install --prefix /tmp --dpu"),
        (2, "sdk migrate --from 3.3 /no/such/file.c"),
    ];
    for (code, arguments) in list {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        // Errors have no columns, so one width is sufficient.
        let widths = if code == 0 { &WIDTHS[..] } else { &WIDTHS[..1] };
        for &width in widths {
            let (actual, recording) = record(&sandbox, &arguments, width);
            assert_eq!(actual, Some(code), "{arguments:?}: {recording}");
        }
    }
}

#[test]
fn results_of_the_demo_fit() {
    fit_results(
        &Sandbox::new(),
        &[
            ("demo --operations 64", &[80][..]),
            ("demo --layout gga --operations 64", &[100, 120]),
        ],
    );
}

#[test]
fn results_of_the_bench_fit() {
    let sandbox = Sandbox::new();
    let json = sandbox.path("before.json");
    let ring = "bench --rounds 1 --seconds 0.02 --only memcpy";
    let before = sandbox
        .command(&ring.split(' ').chain(["--json"]).collect::<Vec<_>>())
        .output()
        .expect("it runs");
    std::fs::write(&json, before.stdout).expect("written");
    let baseline = format!("{ring} --baseline {}", text(&json));
    // Our programs, under the reference's names.
    let reference = sandbox.path("reference");
    std::fs::create_dir(&reference).expect("a directory");
    for name in [
        "doca_storage_target_rdma",
        "doca_storage_comch_to_rdma_zero_copy",
        "doca_storage_comch_to_rdma_gga_offload",
        "doca_storage_initiator_comch",
    ] {
        std::os::unix::fs::symlink(PROGRAM, reference.join(name)).expect("a link");
    }
    let compared = format!("{ring} --compare cpp={}", text(&reference));
    fit_results(
        &sandbox,
        &[
            (
                "bench --rounds 1 --seconds 0.02 --only x64 --only after",
                &[80][..],
            ),
            (&baseline, &WIDTHS),
            (
                "bench --axes --rounds 1 --seconds 0.01 --only memcpy",
                &[80],
            ),
            (&compared, &[80]),
        ],
    );
}

#[test]
fn results_of_conformance_fit() {
    fit_results(
        &Sandbox::new(),
        &[
            ("conformance role target --only ids", &WIDTHS[..]),
            (
                "conformance hostile --role target --only control-nothing",
                &[80],
            ),
            (
                "conformance faults --only initiator,_query_storage_request,_SIGTERM",
                &[80],
            ),
            ("conformance simulate --duration 1s", &WIDTHS),
            (
                "conformance matrix --strategy read_throughput_test --operations 64",
                &[80],
            ),
            ("conformance hammer --duration 3s --layout zero-copy", &[80]),
            (
                "conformance hammer --load nbd --duration 1s --layout zero-copy",
                &[80],
            ),
        ],
    );
}

/// Checks tables of commands that run a deployment, each at its most critical width; of quick commands also at other widths.
fn fit_results(sandbox: &Sandbox, commands: &[(&str, &[usize])]) {
    for (arguments, widths) in commands {
        // Names of faults contain `, `.
        let arguments: Vec<String> = arguments
            .split(' ')
            .map(|word| word.replace(",_", ", "))
            .collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        for &width in *widths {
            let (code, recording) = record(sandbox, &arguments, width);
            assert!(code.is_some_and(|code| code <= 1), "{code:?}: {recording}");
            assert!(
                recording.contains('│') || arguments[1] == "simulate",
                "{recording}"
            );
        }
    }
}

/// Output of the roles of a session, with its statistics, and of `status` during the session.
#[test]
fn sessions_of_roles_fit() {
    const WIDTH: usize = 80;
    let sandbox = Sandbox::new();
    let start = |role: &'static str, arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let command = on_terminal(&sandbox.command(&arguments), WIDTH);
        Process::spawn_interactive(role, command).expect("script (of util-linux) is installed")
    };
    let mut targets = Vec::new();
    let mut flags = String::new();
    for name in TARGETS {
        let mut target = start(
            "target",
            "target -d 3b:00.0 --cpu 0 --listen-port 0 --block-size 2112 --block-count 64 --metrics 0",
        );
        let port = target
            .wait_for("was listening", TIMEOUT, listening_port)
            .expect("the target listens");
        flags += &format!(" --{}-storage 127.0.0.1:{port}", name.replace('_', "-"));
        targets.push(target);
    }
    let service = waiting(start(
        "service",
        &format!(
            "gga-offload -d 03:00.0 -r 3b:00.0 --cpu 0 --logical-block-size 4096 --metrics 0 --control-timeout 60{flags}"
        ),
    ));
    let endpoint = said_endpoint(&service);
    // More operations than can complete while the screens are recorded.
    let initiator = start(
        "initiator",
        "initiator -d 3b:00.0 --cpu 0 --execution-strategy read_write_data_validity_test --run-limit-operation-count 20000 \
         --progress always --control-timeout 60",
    );
    for width in WIDTHS {
        record(&sandbox, &["status", &endpoint, "1"], width);
        let mut top = on_terminal(&sandbox.command(&["top", &endpoint, "1"]), width);
        let mut top = top.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let top = top.as_mut().expect("script (of util-linux) is installed");
        std::thread::sleep(std::time::Duration::from_millis(500));
        let mut keys = top.stdin.take().expect("piped");
        keys.write_all(b"q").expect("it reads");
        let mut recording = String::new();
        let mut screen = top.stdout.take().expect("piped");
        screen.read_to_string(&mut recording).expect("text");
        assert!(top.wait().expect("it ends").success(), "{recording}");
        // One of the two roles responds.
        assert!(recording.contains("1 of 2"), "{recording}");
        fits(&recording, width, &["top"]);
    }
    let recording = ended(initiator);
    mentions(&recording, &["20000", "81920000", "equal"]);
    fits(&recording, WIDTH, &["initiator"]);
    for process in targets.into_iter().chain([service]) {
        fits(&ended(process), WIDTH, &["a role"]);
    }
}

/// Output of roles that serve until they are interrupted, and of an initiator that is interrupted during its run.
#[test]
fn interrupted_commands_fit() {
    const WIDTH: usize = 80;
    let sandbox = Sandbox::new();
    let start = |role: &'static str, arguments: &str, ready: &dyn Fn(&str) -> bool| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let command = on_terminal(&sandbox.command(&arguments), WIDTH);
        let mut process =
            Process::spawn_interactive(role, command).expect("script (of util-linux) is installed");
        let port = process
            .wait_for("was ready", TIMEOUT, |line| {
                ready(line).then(|| listening_port(line))
            })
            .unwrap_or_else(|failure| {
                panic!("{arguments:?}: {failure}: {}", process.lines().join("\n"))
            });
        (process, port.unwrap_or(0))
    };
    let listens = |line: &str| listening_port(line).is_some();
    let (target, port) = start(
        "target",
        "target -d 3b:00.0 --cpu 0 --listen-port 0 --sessions forever",
        &listens,
    );
    let (service, _) = start(
        "service",
        &format!(
            "zero-copy -d 03:00.0 -r 3b:00.0 --cpu 0 --sessions forever --storage-server 127.0.0.1:{port} --control-timeout 60"
        ),
        &|line| LogEvent::parse(line) == Some(LogEvent::WaitingForInitiator),
    );
    for (name, arguments) in [
        ("nbd", "nbd -d 3b:00.0 --cpu 0 --control-timeout 60"),
        (
            "vhost-user-blk",
            "vhost-user-blk -d 3b:00.0 --control-timeout 60",
        ),
    ] {
        let socket = sandbox.path(name);
        let arguments = format!("{arguments} --socket {}", text(&socket));
        let (server, _) = start(name, &arguments, &|line| line.contains(text(&socket)));
        let (code, recording) = interrupted(server);
        assert_eq!(code, Some(0), "{recording}");
        fits(&recording, WIDTH, &[name]);
    }
    let (initiator, _) = start(
        "initiator",
        "initiator -d 3b:00.0 --cpu 0 --execution-strategy read_write_data_validity_test --run-limit-operation-count 2000000000 \
         --progress always --control-timeout 60 --io-timeout 60",
        &|line| line.contains("start_storage_request"),
    );
    // The initiator's statistics are tested by sessions.rs; here they may be missing if the machine is very slow.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (code, recording) = interrupted(initiator);
    assert_eq!(code, Some(1), "{recording}");
    fits(&recording, WIDTH, &["initiator"]);
    let transcript = sandbox.path("session.transcript");
    let (recorder, _) = start(
        "record",
        &format!(
            "conformance record --listen 0 --to 127.0.0.1:{port} --output {}",
            text(&transcript)
        ),
        &listens,
    );
    let content = sandbox.file("content", &[0; 65536]);
    let (faulty, _) = start(
        "faulty-target",
        &format!(
            "conformance faulty-target --content {} --fault ignore-writes",
            text(&content)
        ),
        &listens,
    );
    // A signal ends the target without output.
    fits(&faulty.lines().join("\n"), WIDTH, &["faulty-target"]);
    drop(faulty);
    for (process, name) in [
        (recorder, "record"),
        (service, "zero-copy"),
        (target, "target"),
    ] {
        let (code, recording) = interrupted(process);
        assert!(code.is_some_and(|code| code <= 1), "{name}: {recording}");
        fits(&recording, WIDTH, &[name]);
    }
}

/// Process of the program that `script` records.
fn child(recorder: u32) -> rustix::process::Pid {
    let children = format!("/proc/{recorder}/task/{recorder}/children");
    let children = std::fs::read_to_string(children).expect("it runs");
    let child: i32 = children.trim().parse().expect("one child");
    rustix::process::Pid::from_raw(child).expect("a process")
}

/// Waits for the exit of a process that is not a child of this one; kills it if it does not exit.
fn wait_for_orphan(process: rustix::process::Pid) {
    let status = format!("/proc/{}/stat", process.as_raw_nonzero());
    let deadline = default_deadline();
    // The state follows the name. The new parent of an orphan need not reap it.
    while std::fs::read_to_string(&status).is_ok_and(|status| !status.contains(") Z")) {
        if std::time::Instant::now() >= deadline {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            panic!("it runs without its terminal");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn top_exits_with_its_terminal() {
    let sandbox = Sandbox::new();
    // A closed terminal sends SIGHUP to its processes, which may ignore it.
    for signal in ["", "trap '' HUP; "] {
        let code = sandbox.path("code");
        let _ = std::fs::remove_file(&code);
        // The shell ignores the signal in any case, and writes the exit code of `top`.
        let line = format!(
            "stty cols 80 rows 24; trap : HUP; ({signal}exec {PROGRAM} top 1 2); echo $? > {}.new; mv {0}.new {0}",
            text(&code)
        );
        let mut recorder = Command::new("script");
        let mut recorder = recorder
            .args(["--quiet", "--flush", "--command", &line, "/dev/null"])
            .env("SOFTDOCA_RUNTIME_DIR", sandbox.runtime())
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script (of util-linux) is installed");
        let mut screen = recorder.stdout.take().expect("piped");
        let mut shown = Vec::new();
        while !String::from_utf8_lossy(&shown).contains("0 of 2 roles") {
            let mut part = [0; 4096];
            let count = screen.read(&mut part).expect("a screen");
            assert!(count != 0, "{}", String::from_utf8_lossy(&shown));
            shown.extend_from_slice(&part[..count]);
        }
        let shell = child(recorder.id());
        recorder.kill().expect("it runs");
        recorder.wait().expect("it was killed");
        wait_for_orphan(shell);
        let code = std::fs::read_to_string(&code).expect("the exit code of top");
        assert_eq!(code.trim(), "1", "{line}");
    }
}

/// Sends SIGINT to the program that `script` records, and returns its exit code and its output.
fn interrupted(mut recorded: Process) -> (Option<i32>, String) {
    let child = child(recorded.id());
    rustix::process::kill_process(child, rustix::process::Signal::INT).expect("it runs");
    let status = recorded.wait(default_deadline());
    recorded.drain(TIMEOUT);
    let recording = recorded.lines().join("\n");
    let status = status.unwrap_or_else(|| panic!("{} has not ended: {recording}", recorded.role()));
    (status.code(), recording)
}

/// Metrics endpoint in a role's output.
fn said_endpoint(role: &Process) -> String {
    let lines = role.lines();
    let mut urls = lines
        .iter()
        .filter_map(|line| match LogEvent::parse(line)? {
            LogEvent::ServingMetrics { url } => Some(url),
            _ => None,
        });
    let url = urls.next().and_then(|url| url.strip_prefix("http://"));
    let address = url.and_then(|url| url.split('/').next());
    address.expect("it serves metrics").to_owned()
}

/// Waits for the role to succeed; returns its output.
fn ended(mut process: Process) -> String {
    let status = process.wait(default_deadline()).expect("the role ends");
    process.drain(TIMEOUT);
    let recording = process.lines().join("\n");
    assert!(status.success(), "{status}: {recording}");
    recording
}

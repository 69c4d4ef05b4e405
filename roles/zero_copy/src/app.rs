//! The zero copy service, from its flags to its statistics: one target, whose storage is presented unchanged.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use clap::Parser;
use control::Failure;
use control::network::HostPort;
use control::verifier::{KnownStorage, Verifier};
use doca::{Device, ErrorCode, Mmap};
use metrics::{Count, Statistics};
use role_common::application::Environment;
use role_common::control_socket::{Command, Operator};
use role_common::flags::{GeneralFlags, OutputFlags, RoleFlags, server_address};
use role_common::service::session::{Layout, Memory};
use role_common::service::{self, Service, ServiceFlags, WorkerSetup};
use serde_json::{Map, Value};
use wire::control::{FEATURE_FLUSH, FEATURE_VERIFIER, StorageDetails};

use crate::data_path::ZeroCopyDataPath;

const EXAMPLES: &str = "\
Examples:
  A service for the host function 3b:00.0, with the storage of a target:
    doca_storage_comch_to_rdma_zero_copy -d 03:00.0 -r 3b:00.0 --storage-server 172.17.0.1:12345 --cpu 0";

// A constant instead of a doc comment, because rustdoc would interpret the placeholders as HTML tags.
const STORAGE_SERVER: &str = "Storage server addresses in <ip_addr>:<port> or <host>:<port> format";

/// A storage service that forwards the I/O of an initiator to a storage target
#[derive(Debug, Clone, Parser)]
#[command(after_help = EXAMPLES)]
pub struct Flags {
    /// DOCA's general flags.
    #[command(flatten)]
    pub general: GeneralFlags,

    /// Flags common to all services.
    #[command(flatten)]
    pub service: ServiceFlags,

    /// Address of the storage target.
    #[arg(long, value_name = "ADDRESS", value_parser = server_address, help = STORAGE_SERVER)]
    pub storage_server: HostPort,

    /// Flags for output, log and metrics.
    #[command(flatten)]
    pub output: OutputFlags,
}

impl RoleFlags for Flags {
    fn general(&self) -> &GeneralFlags {
        &self.general
    }

    fn output(&self) -> &OutputFlags {
        &self.output
    }

    fn cpu(&self) -> &[u32] {
        &self.service.cpu
    }

    fn check(&self) -> Result<(), Failure> {
        Ok(self.service.tls.check()?)
    }
}

pub(crate) fn run(flags: Flags, environment: Environment) -> Result<(), Failure> {
    let addresses = [flags.storage_server.clone()];
    environment
        .metrics
        .declare(&[Count::Refused, Count::Unexpected], false);
    let holder = flags.service.holder(&Passthrough)?;
    let _control_socket = (flags.service).start_control_socket(
        crate::NAME,
        &environment,
        holder.as_ref(),
        WithoutSet,
    )?;
    let known = Rc::<Cell<KnownStorage>>::default();
    service::run(
        || ZeroCopy {
            memory: None,
            known: Rc::clone(&known),
        },
        &Passthrough,
        &flags.service,
        &addresses,
        holder.as_ref(),
        &environment,
        |cores| {
            environment
                .console
                .report(&Statistics::new(crate::NAME, cores));
        },
    )
}

/// The operator's commands for a service that has no set.
struct WithoutSet;

impl Operator for WithoutSet {
    fn status(&self) -> Map<String, Value> {
        Map::new()
    }

    fn execute(&self, _: &Command) -> Result<Value, Failure> {
        Err(Failure::new(
            ErrorCode::NOT_SUPPORTED,
            "expected a command for a service without a set: status, takeover, drain or log-level",
        ))
    }
}

struct ZeroCopy {
    /// The initiator's memory; the target can access it while the import exists.
    memory: Option<Mmap>,
    /// The storage of earlier sessions.
    known: Rc<Cell<KnownStorage>>,
}

impl Service for ZeroCopy {
    type Layout = Passthrough;
    type DataPath = ZeroCopyDataPath;

    fn prepare_memory(
        &mut self,
        device: &Device,
        _: &Memory,
        initiator: Mmap,
    ) -> Result<Bytes, Failure> {
        let export = initiator
            .export_rdma(device)
            .map_err(|error| Failure::from(error).context("memory map of the init request"))?;
        self.memory = Some(initiator);
        Ok(Bytes::from(export))
    }

    fn worker(
        &self,
        setup: WorkerSetup,
    ) -> Result<impl FnOnce() -> Result<ZeroCopyDataPath, Failure> + Send + 'static, Failure> {
        Ok(|| ZeroCopyDataPath::create(setup))
    }

    /// The verifier of the target, which stores all writes.
    fn verifier(&mut self, targets: &[Option<Verifier>]) -> Result<Option<Verifier>, Failure> {
        let verifier = targets.first().cloned().flatten();
        if let Some(verifier) = &verifier {
            let mut known = self.known.get();
            known
                .accept(verifier.identity, verifier.is_in_memory)
                .map_err(|other| {
                    Failure::new(
                        ErrorCode::BAD_STATE,
                        format!(
                            "storage target: {other}; start the target with the backing file that it had (is its file system mounted?), or \
                             restart this service to use the other one"
                        ),
                    )
                })?;
            self.known.set(known);
        }
        Ok(verifier)
    }
}

/// Presents the target's storage unchanged.
#[derive(Debug, Clone, Copy)]
struct Passthrough;

impl Layout for Passthrough {
    const TARGETS: &'static [&'static str] = &["storage target"];

    fn present(&self, targets: &[StorageDetails]) -> Result<StorageDetails, Failure> {
        match targets {
            [details] => Ok(details.clone()),
            other => Err(Failure::unexpected(format!(
                "expected one target, {} answered",
                other.len()
            ))),
        }
    }

    const FEATURES: u32 = FEATURE_FLUSH | FEATURE_VERIFIER;

    /// Requests are forwarded unchanged, so the target's extensions are the service's.
    fn features(&self, targets: &[u32]) -> u32 {
        targets.first().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::time::{Duration, Instant};

    use control::ChannelEvent;
    use role_common::flags::{self, FlagsError};
    use role_common::init_limits::InitLimits;
    use role_common::service::session::{self, Action, Event, Job, MAX_TRANSACTIONS, Outcome};
    use role_target::session::{
        Action as TargetAction, Event as TargetEvent, Geometry, Job as TargetJob,
        Outcome as TargetOutcome,
    };
    use wire::control::{
        ErrorResponse, InitStorage, Message, Payload, RdmaConnectionDetails, RdmaConnectionRole,
    };
    use wire::release::Release;

    use super::*;

    type Session = session::Session<Passthrough>;

    fn parse(args: &str) -> Result<Flags, FlagsError> {
        flags::read(
            crate::NAME,
            std::iter::once("x")
                .chain(args.split_whitespace())
                .map(OsString::from),
        )
    }

    #[test]
    fn command_line_of_the_guide_is_accepted() {
        let flags = parse("-d 03:00.0 -r 3b:00.0 --storage-server 172.17.0.1:12345 --cpu 0")
            .expect("flags");
        assert_eq!(
            (
                flags.service.device.as_str(),
                flags.service.representor.as_str()
            ),
            ("03:00.0", "3b:00.0")
        );
        assert_eq!(flags.storage_server.port(), 12345);
        assert_eq!(flags.service.command_channel_name, "doca_storage_comch");
        assert_eq!(flags.service.control_timeout(), Duration::from_secs(5));
    }

    #[test]
    fn errors_name_mandatory_flags_and_ranges() {
        let cases = [
            ("-r y --storage-server 1.2.3.4:5 --cpu 0", "--device"),
            ("-d x --storage-server 1.2.3.4:5 --cpu 0", "--representor"),
            ("-d x -r y --cpu 0", "--storage-server"),
            ("-d x -r y --storage-server 1.2.3.4:5", "--cpu"),
            (
                "-d x -r y --storage-server 1.2.3:5 --cpu 0",
                "<host>:<port>",
            ),
            (
                "-d x -r y --storage-server 1.2.3.4:5 --cpu 0 --control-timeout 0",
                "--control-timeout",
            ),
            (
                "-d x -r y --storage-server 1.2.3.4:5 --cpu 0 --command-channel-name=",
                "--command-channel-name",
            ),
        ];
        for (args, part) in cases {
            match parse(args) {
                Err(FlagsError::Usage(text)) => assert!(text.contains(part), "{args}: {text}"),
                other => panic!("{args}: {other:?}"),
            }
        }
    }

    #[test]
    fn verifier_of_the_target_is_passed_on_to_an_initiator_that_asks_for_it() {
        use control::verifier::{Incarnation, StorageId};
        use wire::control::FeatureQuery;
        let verifier = Verifier::of_one(StorageId(5), false, Incarnation(6));
        let verified = Payload::VerifiedInitStorageResponse((&verifier).into());
        for (asked, has, expected) in [
            (FEATURE_VERIFIER, FEATURE_VERIFIER, &verified),
            (FEATURE_FLUSH, u32::MAX, &Payload::InitStorageResponse),
            (u32::MAX, FEATURE_FLUSH, &Payload::InitStorageResponse),
        ] {
            let mut world = World::new(1, 1);
            world.target = world
                .target
                .with_identity(verifier.clone(), None)
                .with_features(has);
            world.request(Payload::AnnounceStorageRequest(FeatureQuery {
                features: asked,
            }));
            assert_eq!(world.request(init(1, 1)).as_ref(), Some(expected));
        }
    }

    #[test]
    fn another_storage_than_in_earlier_sessions_is_refused() {
        use control::verifier::{Incarnation, StorageId};
        let mut service = ZeroCopy {
            memory: None,
            known: Rc::default(),
        };
        let mut serve = |identity, incarnation| {
            let identity = StorageId(identity);
            let verifier = Verifier::of_one(identity, false, Incarnation(incarnation));
            service.verifier(&[Some(verifier)])
        };
        serve(1, 1).expect("the first one");
        serve(1, 2).expect("the same one after a reboot");
        let failure = serve(0xabc, 3).expect_err("another one");
        assert_eq!(failure.code, ErrorCode::BAD_STATE);
        for identity in ["0000001", "0000abc"] {
            assert!(failure.message.contains(identity), "{failure}");
        }
        serve(1, 4).expect("the first one again");
        assert_eq!(service.verifier(&[None]), Ok(None), "the reference's");
    }

    fn init(core_count: u32, transaction_count: u32) -> Payload {
        let mmap_export_blob = Bytes::from_static(b"host memory");
        Payload::InitStorageRequest(InitStorage {
            transaction_count,
            core_count,
            mmap_export_blob,
        })
    }

    #[test]
    fn target_extensions_are_announced_to_an_initiator_that_announces_its_own() {
        use wire::control::{AnnouncedStorage, FEATURE_FLUSH, FeatureQuery};
        let details = StorageDetails {
            total_size: 4096,
            block_size: 512,
        };
        let announce = |features| Payload::AnnounceStorageRequest(FeatureQuery { features });
        for (query, target, expected) in [
            (
                announce(u32::MAX),
                u32::MAX,
                FEATURE_FLUSH | FEATURE_VERIFIER,
            ),
            (announce(FEATURE_FLUSH), u32::MAX, FEATURE_FLUSH),
            (announce(FEATURE_FLUSH), FEATURE_FLUSH, FEATURE_FLUSH),
            (announce(FEATURE_FLUSH), 0, 0),
            (announce(0), FEATURE_FLUSH, 0),
            (Payload::QueryStorageRequest, FEATURE_FLUSH, 0),
        ] {
            let mut world = World::new(2, 2);
            world.target = world.target.with_features(target);
            let answer = world.request(query.clone());
            let expected_answer = if expected == 0 {
                Payload::QueryStorageResponse(details.clone())
            } else {
                Payload::AnnouncedStorageResponse(AnnouncedStorage {
                    total_size: 4096,
                    block_size: 512,
                    features: expected,
                    version_slots: 0,
                    last_epoch: 0,
                    last_number: 0,
                    retired_epoch: 0,
                    retired_number: 0,
                    unretired: Bytes::new(),
                })
            };
            assert_eq!(answer, Some(expected_answer), "{query:?} {target}");
            assert_eq!(world.service.features(), expected);
            assert_eq!(world.target.announced_features(), expected);
        }
    }

    #[test]
    fn a_session_from_query_to_shutdown() {
        let mut world = World::new(2, 2);
        let details = StorageDetails {
            total_size: 4096,
            block_size: 512,
        };
        assert_eq!(
            world.request(Payload::QueryStorageRequest),
            Some(Payload::QueryStorageResponse(details.clone()))
        );

        assert_eq!(
            world.request(init(2, 64)),
            Some(Payload::InitStorageResponse)
        );
        let connected = |index: u32, role: &str| {
            vec![
                format!("Export {{ index: {index}, target: 0, role: {role} }}"),
                format!(
                    "target Connect(RdmaConnectionDetails {{ context_index: {index}, role: {role}, connection_details: b\"service end\" }})"
                ),
                format!(
                    "Connect {{ target: 0, details: RdmaConnectionDetails {{ context_index: {index}, role: {role}, connection_details: b\"target end\" }} }}"
                ),
            ]
        };
        let memory = Memory {
            is_maintenance: false,
            mmap_export_blob: Bytes::from_static(b"host memory"),
            core_count: 2,
            transaction_count: 128,
            release: Release::V3_2,
            targets: vec![Some(session::Described {
                storage: details,
                identity: None,
                superblock: None,
                features: 0,
                versions: session::KeptVersions::default(),
            })],
            limits: InitLimits {
                max_transactions: 8192,
                max_session_memory: 2048,
            },
        };
        let mut expected = vec![
        format!("PrepareMemory({memory:?})"),
        "target CreateWorkers(InitStorage { transaction_count: 128, core_count: 2, mmap_export_blob: b\"host memory for rdma\" })"
            .to_owned(),
    ];
        for index in 0..2 {
            expected.push(format!(
                "CreateWorker {{ index: {index}, transaction_count: 128 }}"
            ));
            expected.extend(connected(index, "IoData"));
            expected.extend(connected(index, "IoControl"));
        }
        assert_eq!(world.jobs, expected);

        world.jobs.clear();
        world.client(ChannelEvent::ConsumerAdded(11));
        assert_eq!(
            world.request(Payload::StartStorageRequest),
            None,
            "one consumer is missing"
        );
        world.client(ChannelEvent::ConsumerAdded(12));
        assert_eq!(world.answer(), Some(Payload::StartStorageResponse));
        assert_eq!(
            world.jobs,
            [
                "target StartWorkers",
                "StartWorkers { consumers: [11, 12] }"
            ]
        );

        world.jobs.clear();
        assert_eq!(
            world.request(Payload::StopStorageRequest),
            Some(Payload::StopStorageResponse)
        );
        assert_eq!(
            world.jobs,
            ["Quiesce", "target StopWorkers", "StopWorkers"],
            "stopped before it is answered"
        );

        world.jobs.clear();
        world.client(ChannelEvent::ConsumerExpired(11));
        assert_eq!(
            world.request(Payload::ShutdownRequest),
            None,
            "a consumer of the initiator is left"
        );
        assert!(world.jobs.is_empty(), "shutdown is not forwarded before");
        world.client(ChannelEvent::ConsumerExpired(12));
        assert_eq!(world.answer(), Some(Payload::ShutdownResponse));
        assert_eq!(world.jobs, ["target DestroyWorkers", "DestroyWorkers"]);
        assert_eq!(world.end, Some(Ok(())));
        assert!(world.target.is_finished());

        assert!(
            world
                .forwarded
                .iter()
                .all(|&(correlation, _)| correlation == 77),
            "the client's correlation id"
        );
        let mut ids: Vec<u32> = world.forwarded.iter().map(|&(_, id)| id).collect();
        ids.dedup();
        assert_eq!(
            ids.len(),
            9,
            "own message ids: query, init, 4 connections, start, stop, shutdown"
        );
    }

    #[test]
    fn unexpected_requests_are_refused_and_leave_the_state_unchanged() {
        let mut world = World::new(1, 1);
        let error = world.error(Payload::StartStorageRequest);
        assert_eq!(error.error_code, ErrorCode::UNEXPECTED.0);
        assert!(
            error.message.contains("start_storage_request")
                && error.message.contains("query_storage_request")
        );
        assert!(world.forwarded.is_empty(), "the target does not hear of it");
        assert!(matches!(
            world.request(Payload::QueryStorageRequest),
            Some(Payload::QueryStorageResponse(_))
        ));

        let connect = RdmaConnectionDetails {
            context_index: 0,
            role: RdmaConnectionRole::IoData,
            connection_details: Bytes::new(),
        };
        assert!(
            world
                .error(Payload::CreateRdmaConnectionRequest(connect))
                .message
                .contains("init_storage_request")
        );
    }

    #[test]
    fn counts_out_of_range_are_refused_by_the_service() {
        let mut world = World::new(1, 8);
        world.request(Payload::QueryStorageRequest);
        for (cores, transactions, limit, found) in [
            (0, 1, "--cpu", "0"),
            (2, 1, "--cpu", "2"),
            (1, 0, "4000", "0"),
            (1, u32::MAX, "4000", "4294967295"),
            (1, MAX_TRANSACTIONS + 1, "4000", "4001"),
        ] {
            let error = world.error(init(cores, transactions));
            assert_eq!(error.error_code, ErrorCode::INVALID_VALUE.0);
            for value in [limit, found] {
                assert!(error.message.contains(value), "{}", error.message);
            }
            assert_eq!(world.forwarded.len(), 1, "only the query");
        }
        assert_eq!(
            world.request(init(1, MAX_TRANSACTIONS)),
            Some(Payload::InitStorageResponse),
            "the target takes twice"
        );
    }

    #[test]
    fn memory_map_may_be_replaced_after_a_failed_import() {
        let mut world = World::new(1, 1);
        world.request(Payload::QueryStorageRequest);
        world.failing_job = "PrepareMemory";
        assert_eq!(world.error(init(1, 1)).message, "the job failed");
        assert_eq!((world.forwarded.len(), &world.end), (1, &None));
        world.failing_job = "nothing";
        assert_eq!(
            world.request(init(1, 1)),
            Some(Payload::InitStorageResponse)
        );
    }

    #[test]
    fn error_of_the_target_is_forwarded_and_ends_the_session() {
        let mut world = World::new(4, 1);
        world.request(Payload::QueryStorageRequest);
        let error = world.error(init(4, 1));
        assert_eq!(error.error_code, ErrorCode::INVALID_VALUE.0);
        assert_eq!(world.forwarded.len(), 2, "the query and this request");
        for value in ["--cpu", "4"] {
            assert!(error.message.contains(value), "{}", error.message);
        }
        assert!(world.ended_with().message.contains(TARGET));
    }

    #[test]
    fn failed_job_is_reported_and_ends_the_session() {
        for job in ["CreateWorker", "Export", "Connect"] {
            let mut world = World::new(1, 1);
            world.request(Payload::QueryStorageRequest);
            world.failing_job = job;
            assert_eq!(world.error(init(1, 1)).message, "the job failed", "{job}");
            assert_eq!(world.ended_with().code, ErrorCode::INVALID_VALUE, "{job}");
        }
    }

    #[test]
    fn unresponsive_target_is_reported_to_the_initiator_as_timeout() {
        let mut world = World::new(1, 1);
        assert_eq!(
            world.service.poll_timeout(),
            None,
            "an initiator may take its time"
        );
        world.target_is_silent = true;
        assert_eq!(world.request(Payload::QueryStorageRequest), None);
        assert_eq!(world.service.poll_timeout(), Some(world.now + TIMEOUT));
        world
            .service
            .handle(Event::Timeout, world.now + TIMEOUT / 2);
        world.run();
        assert_eq!(world.end, None);
        world.service.handle(Event::Timeout, world.now + TIMEOUT);
        world.run();
        let Some(Payload::ErrorResponse(error)) = world.answer() else {
            panic!("expected an error")
        };
        assert_eq!(error.error_code, ErrorCode::TIME_OUT.0);
        assert!(
            error.message.contains("query_storage_response"),
            "{}",
            error.message
        );
        assert_eq!(world.ended_with().code, ErrorCode::TIME_OUT);
    }

    #[test]
    fn missing_and_lingering_consumers_time_out() {
        let mut world = World::new(1, 1);
        world.request(Payload::QueryStorageRequest);
        world.request(init(1, 1));
        assert_eq!(world.request(Payload::StartStorageRequest), None);
        world.service.handle(Event::Timeout, world.now + TIMEOUT);
        world.run();
        world.failed_with(ErrorCode::TIME_OUT, "1 consumers");

        let mut world = World::running();
        world.request(Payload::StopStorageRequest);
        assert_eq!(world.request(Payload::ShutdownRequest), None);
        world.service.handle(Event::Timeout, world.now + TIMEOUT);
        world.run();
        world.failed_with(ErrorCode::TIME_OUT, "2 consumers");
    }

    #[test]
    fn request_while_another_is_processed_is_refused() {
        let mut world = World::new(1, 1);
        world.target_is_silent = true;
        assert_eq!(world.request(Payload::QueryStorageRequest), None);
        let error = world.error(Payload::QueryStorageRequest);
        assert_eq!(error.error_code, ErrorCode::UNEXPECTED.0);
        assert!(
            error.message.contains("query_storage_request"),
            "{}",
            error.message
        );
        assert_eq!(world.forwarded.len(), 1);
    }

    #[test]
    fn disconnection_of_a_peer_ends_the_session() {
        let mut world = World::running();
        world.client(ChannelEvent::Closed);
        world.failed_with(ErrorCode::CONNECTION_RESET, "initiator");
        assert!(!world.ended_with().message.contains(TARGET));
        assert!(world.answers.is_empty());

        let mut world = World::running();
        world.storage(ChannelEvent::Closed);
        world.failed_with(ErrorCode::CONNECTION_RESET, TARGET);

        let mut world = World::new(1, 1);
        world.target_is_silent = true;
        world.request(Payload::QueryStorageRequest);
        world.storage(ChannelEvent::Closed);
        let Some(Payload::ErrorResponse(error)) = world.answer() else {
            panic!("the initiator is told")
        };
        assert_eq!(error.error_code, ErrorCode::CONNECTION_RESET.0);

        // After the end of the session, a peer may disconnect.
        let mut world = World::running();
        world.request(Payload::StopStorageRequest);
        world.client(ChannelEvent::ConsumerExpired(11));
        world.client(ChannelEvent::ConsumerExpired(12));
        world.request(Payload::ShutdownRequest);
        world.storage(ChannelEvent::Closed);
        world.client(ChannelEvent::Closed);
        assert_eq!(world.end, Some(Ok(())));
    }

    #[test]
    fn unsolicited_answers_end_the_session() {
        let mut world = World::new(1, 1);
        let busy = ErrorResponse {
            error_code: ErrorCode::IN_USE.0,
            message: "occupied".to_owned(),
        };
        let payload = Payload::ErrorResponse(busy);
        world.storage(ChannelEvent::Message(Message {
            message_id: 0,
            correlation_id: 0,
            payload,
        }));
        world.failed_with(ErrorCode::IN_USE, "occupied");

        let mut world = World::new(1, 1);
        let payload = Payload::StopStorageResponse;
        world.storage(ChannelEvent::Message(Message {
            message_id: 0,
            correlation_id: 0,
            payload,
        }));
        assert_eq!(world.ended_with().code, ErrorCode::UNEXPECTED);

        // The right type with another id, and the right id with another type.
        for (message_id, payload) in [
            (9, Payload::QueryStorageRequest),
            (0, Payload::StartStorageResponse),
        ] {
            let mut world = World::new(1, 1);
            world.target_is_silent = true;
            world.request(Payload::QueryStorageRequest);
            world.storage(ChannelEvent::Message(Message {
                message_id,
                correlation_id: 77,
                payload,
            }));
            assert_eq!(world.ended_with().code, ErrorCode::UNEXPECTED);
            assert!(matches!(world.answer(), Some(Payload::ErrorResponse(_))));
        }
    }

    #[test]
    fn connection_for_another_context_is_refused() {
        let mut world = World::new(1, 1);
        world.request(Payload::QueryStorageRequest);
        // The target's init is answered, its connections are not.
        world.target_is_silent = true;
        assert_eq!(world.request(init(1, 1)), None);
        let (_, message_id) = *world.forwarded.last().expect("init was forwarded");
        let answer = |message_id, payload| {
            ChannelEvent::Message(Message {
                message_id,
                correlation_id: 77,
                payload,
            })
        };
        world.storage(answer(message_id, Payload::InitStorageResponse));
        let details = RdmaConnectionDetails {
            context_index: 3,
            role: RdmaConnectionRole::IoData,
            connection_details: Bytes::new(),
        };
        world.storage(answer(
            message_id + 1,
            Payload::CreateRdmaConnectionResponse(details),
        ));
        assert!(
            world.ended_with().message.contains("context 3"),
            "{:?}",
            world.end
        );
    }

    #[test]
    fn failed_worker_or_signal_ends_the_session_once() {
        let mut world = World::running();
        world
            .service
            .handle(Event::Failed(Failure::aborted("running")), world.now);
        world
            .service
            .handle(Event::Failed(Failure::invalid("too late")), world.now);
        world.run();
        assert!(
            world.ended_with().message.contains("aborted"),
            "{:?}",
            world.end
        );
    }

    #[test]
    fn requests_to_the_target_use_the_release_of_the_initiator() {
        let mut world = World::new(2, 2);
        world.request(Payload::QueryStorageRequest);
        let (init, _) = init(1, 16).as_init_storage().expect("an init request");
        let request = Payload::init_storage_of(Release::V3_0, init, 4);
        assert_eq!(world.request(request), Some(Payload::InitStorageResponse));
        assert_eq!(world.service.release(), Release::V3_0);
        assert_eq!(world.target.release(), Release::V3_0);
    }

    // Harness: a service session between the test, as initiator, and a target session.

    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Name of the target in errors.
    const TARGET: &str = Passthrough::TARGETS[0];

    /// A session of a service between the test, as initiator, and the session of a target.
    struct World {
        now: Instant,
        service: Session,
        target: role_target::session::Session,
        /// Jobs of service and target, in order.
        jobs: Vec<String>,
        /// Messages that reached the initiator.
        answers: Vec<Message>,
        /// Correlation and message ids that reached the target.
        forwarded: Vec<(u32, u32)>,
        end: Option<Result<(), Failure>>,
        /// `true` if the target's responses are held back.
        target_is_silent: bool,
        /// Job of the service that must fail, by the start of its name.
        failing_job: &'static str,
        next_id: u32,
    }

    impl World {
        fn new(service_cpus: u32, target_cpus: u32) -> Self {
            let mut world = Self {
                now: Instant::now(),
                service: Session::new(Passthrough, service_cpus, TIMEOUT),
                target: role_target::session::Session::new(
                    Geometry {
                        block_size: 512,
                        block_count: 8,
                    },
                    target_cpus,
                ),
                jobs: Vec::new(),
                answers: Vec::new(),
                forwarded: Vec::new(),
                end: None,
                target_is_silent: false,
                failing_job: "nothing",
                next_id: 1000,
            };
            for target in 0..1 {
                let event = ChannelEvent::Connected;
                world
                    .service
                    .handle(Event::Storage { target, event }, world.now);
            }
            world.run();
            world
        }

        fn run(&mut self) {
            while let Some(action) = self.service.poll_action() {
                assert!(self.end.is_none(), "{action:?} after the end");
                match action {
                    Action::Announce | Action::Leave { .. } | Action::Stalled { .. } => {}
                    Action::SendToClient(message) => self.answers.push(message),
                    Action::SendToStorage { message, .. } => self.target_receives(message),
                    Action::Do(job) => {
                        let name = format!("{job:?}");
                        let outcome = match job {
                            _ if name.starts_with(self.failing_job) => {
                                Err(Failure::invalid("the job failed"))
                            }
                            Job::PrepareMemory(memory) => Ok(Outcome::Exported(Bytes::from(
                                [&memory.mmap_export_blob[..], b" for rdma"].concat(),
                            ))),
                            Job::Verify(targets) => Ok(Outcome::Verified(targets[0].clone())),
                            Job::Export { .. } => {
                                Ok(Outcome::Exported(Bytes::from_static(b"service end")))
                            }
                            _ => Ok(Outcome::Done),
                        };
                        self.jobs.push(name);
                        self.service.handle(Event::JobDone(outcome), self.now);
                    }
                    Action::End(result) => self.end = Some(result),
                }
            }
        }

        fn target_receives(&mut self, message: Message) {
            self.forwarded
                .push((message.correlation_id, message.message_id));
            if self.target_is_silent {
                return;
            }
            self.target.handle(
                TargetEvent::Service(ChannelEvent::Message(message)),
                self.now,
            );
            let answer = loop {
                match self.target.poll_action().expect("an answer") {
                    TargetAction::Send(answer) => break answer,
                    TargetAction::Do(job) => {
                        self.jobs.push(format!("target {job:?}"));
                        let outcome = match job {
                            TargetJob::Connect(_) => {
                                TargetOutcome::Exported(Bytes::from_static(b"target end"))
                            }
                            _ => TargetOutcome::Done,
                        };
                        self.target
                            .handle(TargetEvent::JobDone(Ok(outcome)), self.now);
                    }
                    TargetAction::End(result) => panic!("{result:?}"),
                }
            };
            let event = ChannelEvent::Message(answer);
            self.service
                .handle(Event::Storage { target: 0, event }, self.now);
        }

        fn client(&mut self, event: ChannelEvent) {
            self.service.handle(Event::Client(event), self.now);
            self.run();
        }

        fn storage(&mut self, event: ChannelEvent) {
            self.service
                .handle(Event::Storage { target: 0, event }, self.now);
            self.run();
        }

        /// Sends a request and returns the response, if it was immediate.
        fn request(&mut self, payload: Payload) -> Option<Payload> {
            self.next_id += 1;
            let request = Message {
                message_id: self.next_id,
                correlation_id: 77,
                payload,
            };
            self.client(ChannelEvent::Message(request));
            self.answer()
        }

        fn answer(&mut self) -> Option<Payload> {
            let answer = self.answers.pop()?;
            assert!(self.answers.is_empty(), "one answer per request");
            assert_eq!(
                (answer.message_id, answer.correlation_id),
                (self.next_id, 77),
                "the request's ids come back"
            );
            Some(answer.payload)
        }

        fn error(&mut self, payload: Payload) -> ErrorResponse {
            match self.request(payload) {
                Some(Payload::ErrorResponse(error)) => error,
                other => panic!("expected an error, got {other:?}"),
            }
        }

        fn ended_with(&self) -> &Failure {
            self.end
                .as_ref()
                .expect("the end")
                .as_ref()
                .expect_err("a failure")
        }

        /// Requires that the session has ended with this error, which contains the value.
        fn failed_with(&self, code: ErrorCode, value: &str) {
            let failure = self.ended_with();
            assert_eq!(failure.code, code, "{failure}");
            assert!(failure.message.contains(value), "{failure}");
        }

        /// Creates a session with two workers whose data path is running.
        fn running() -> Self {
            let mut world = Self::new(2, 2);
            world.request(Payload::QueryStorageRequest);
            world.request(init(2, 64));
            world.client(ChannelEvent::ConsumerAdded(11));
            world.client(ChannelEvent::ConsumerAdded(12));
            assert_eq!(
                world.request(Payload::StartStorageRequest),
                Some(Payload::StartStorageResponse)
            );
            world.jobs.clear();
            world
        }
    }
}

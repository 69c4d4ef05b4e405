//! Flags of front ends: the services of their storage, and timeouts.

use std::time::Duration;

use clap::Args;
use control::Failure;

use crate::console::counted;

use super::{DEFAULT_CHANNEL, Timeout, channel_name, duration, timeout};

/// Services of a storage, and how long a front end waits for them.
#[derive(Clone, Debug, Args)]
pub struct FrontEndFlags {
    /// Device of a storage service: PCI address, IB device name or interface name. Give it once for all services, or once for each, in order
    /// of preference
    #[arg(short = 'd', long, value_name = "DEVICE", required = true)]
    pub device: Vec<String>,

    /// Name of the Comch channel of a service; give it once for each service, in order of preference. When a session fails, or a service does
    /// not accept one, the next service is tried, and after the last one the first [default: doca_storage_comch on each device]
    #[arg(long, value_name = "NAME", value_parser = channel_name)]
    pub command_channel_name: Vec<String>,

    /// Time (in seconds, or with a unit such as 2m) to wait for the service when the storage is opened, and in each step of a session's
    /// start. One of several services has to accept the connection within 1 s, in later rounds 2 s, 4 s and so on up to this time
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = duration)]
    pub control_timeout: Duration,

    /// Time (in seconds, or with a unit such as 2m) without a completion while I/Os are in flight, after which a service is given up as
    /// unresponsive; 0 is unlimited
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = timeout)]
    pub io_timeout: Timeout,

    /// Time (in seconds, or with a unit such as 2m) after which I/Os fail while no service is available
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = duration)]
    pub reconnect_timeout: Duration,
}

impl FrontEndFlags {
    /// Device and channel name of each service, in order of preference.
    ///
    /// # Errors
    ///
    /// The numbers of devices and names do not match.
    pub fn services(&self) -> Result<Vec<(String, String)>, Failure> {
        let (devices, names) = (&self.device, &self.command_channel_name);
        let pair = |(device, name): (&String, &String)| (device.clone(), name.clone());
        match (devices.len(), names.len()) {
            (_, 0) => {
                let name = DEFAULT_CHANNEL.to_owned();
                Ok(devices.iter().map(|device| pair((device, &name))).collect())
            }
            (1, _) => Ok(devices.iter().cycle().zip(names).map(pair).collect()),
            (some, others) if some == others => Ok(devices.iter().zip(names).map(pair).collect()),
            (some, others) => Err(Failure::invalid(format!(
                "--device and --command-channel-name: expected one device for all services, or one for each, got {} and {}; give them in \
                 pairs",
                counted(some as u64, "device"),
                counted(others as u64, "channel name")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: FrontEndFlags,
    }

    fn services(arguments: &str) -> Result<Vec<(String, String)>, String> {
        let words = ["program"].into_iter().chain(arguments.split_whitespace());
        let program = Program::try_parse_from(words).map_err(|error| error.to_string())?;
        program.flags.services().map_err(|failure| failure.message)
    }

    fn pairs(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        let pair = |&(device, name): &(&str, &str)| (device.to_owned(), name.to_owned());
        Ok(pairs.iter().map(pair).collect())
    }

    #[test]
    fn one_device_without_a_name_has_the_default_channel() {
        assert_eq!(services("-d x"), pairs(&[("x", DEFAULT_CHANNEL)]));
        assert_eq!(
            services("-d x -d y"),
            pairs(&[("x", DEFAULT_CHANNEL), ("y", DEFAULT_CHANNEL)])
        );
        assert!(services("").is_err());
    }

    #[test]
    fn devices_and_names_are_paired_in_order() {
        assert_eq!(
            services("-d x --command-channel-name a"),
            pairs(&[("x", "a")])
        );
        for arguments in [
            "-d x --command-channel-name a -d y --command-channel-name b",
            "-d x -d y --command-channel-name a --command-channel-name b",
        ] {
            assert_eq!(services(arguments), pairs(&[("x", "a"), ("y", "b")]));
        }
        assert_eq!(
            services("-d x --command-channel-name a --command-channel-name b"),
            pairs(&[("x", "a"), ("x", "b")])
        );
    }

    #[test]
    fn numbers_that_do_not_match_are_refused_with_both() {
        let error = services("-d x -d y --command-channel-name a").expect_err("two and one");
        assert!(
            error.contains("got 2 devices and 1 channel name"),
            "{error}"
        );
        let error = services(
            "-d x -d y --command-channel-name a --command-channel-name b --command-channel-name c",
        )
        .expect_err("two and three");
        assert!(error.contains("2 devices and 3 channel names"), "{error}");
    }

    #[test]
    fn unresponsive_services_are_given_up_after_a_second_at_the_earliest() {
        let io_timeout = |arguments: &str| {
            let words = ["program", "-d", "x"]
                .into_iter()
                .chain(arguments.split_whitespace());
            Program::try_parse_from(words).map(|program| program.flags.io_timeout.0)
        };
        assert_eq!(io_timeout("").ok(), Some(Some(Duration::from_secs(60))));
        assert_eq!(
            io_timeout("--io-timeout 1").ok(),
            Some(Some(Duration::from_secs(1)))
        );
        assert_eq!(io_timeout("--io-timeout 0").ok(), Some(None));
        assert!(io_timeout("--io-timeout 10ms").is_err());
    }
}

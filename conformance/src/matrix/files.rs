//! What the targets begin with.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use wire::sbc::HEADER_SIZE;

use super::content::{self, BLOCK_SIZE, HALF_BLOCK_SIZE};
use super::member::Member;
use super::mix::{Layout, Mix};
use crate::implementation::Role;
use crate::process::Process;
use crate::scene::{DPU_DEVICE, Scene};

/// The bytes of the files of one session.
#[derive(Debug, Clone)]
pub(super) struct Files {
    /// What the initiator knows of the storage.
    pub(super) plain: Vec<u8>,
    /// What each target begins with: plain bytes, or a `.sbc` file.
    pub(super) targets: Vec<Vec<u8>>,
    /// Bytes of a target's block. In gga, half of the initiator's; for generators of versions 3.0 and 3.1 of the reference, all of it.
    pub(super) block_size: usize,
}

/// The three `.sbc` files of a generator, or why it did not make them.
type Generated = Result<Vec<Vec<u8>>, String>;

/// Files that were made once for all sessions.
#[derive(Debug)]
pub(super) struct Library {
    plain: Vec<u8>,
    /// By the name of the generator's implementation.
    generated: Mutex<BTreeMap<String, Generated>>,
    /// Time that a generator gets.
    timeout: Duration,
}

impl Library {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            plain: content::plain(),
            generated: Mutex::default(),
            timeout,
        }
    }

    /// The files of a mix.
    ///
    /// # Errors
    ///
    /// Why they could not be made.
    pub(super) fn of(&self, mix: &Mix<'_>, cpu: usize) -> Result<Files, String> {
        let plain = self.plain.clone();
        let targets = match (mix.layout, mix.generator) {
            (Layout::ZeroCopy, _) => vec![plain.clone()],
            (Layout::Gga, None) => {
                return Err(format!("nobody has a {}", Role::SbcGenerator));
            }
            (Layout::Gga, Some(member)) => {
                // Held while the generator runs: nobody else needs to make the same files.
                let mut generated = self
                    .generated
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                generated
                    .entry(member.name().to_owned())
                    .or_insert_with(|| self.generate(member, cpu))
                    .clone()?
            }
        };
        let block_size = match mix.layout {
            Layout::ZeroCopy => BLOCK_SIZE,
            Layout::Gga => (targets[0].len() - HEADER_SIZE) / content::BLOCKS,
        };
        Ok(Files {
            plain,
            targets,
            block_size,
        })
    }

    fn generate(&self, member: &Member, cpu: usize) -> Generated {
        let io = |error: io::Error| format!("{}'s generator: {error}", member.name());
        let scene = Scene::new().map_err(io)?;
        let original = scene.file("original", &self.plain).map_err(io)?;
        let mut command = member
            .command(Role::SbcGenerator, cpu)
            .map_err(|error| error.to_string())?;
        command
            .args(["--device", DPU_DEVICE])
            .arg("--original-input-data")
            .arg(original)
            .args(["--block-size", &BLOCK_SIZE.to_string()]);
        let files = Layout::Gga.targets().iter().map(|name| scene.path(name));
        let files: Vec<_> = files.collect();
        for (flag, path) in std::iter::zip(["--data-1", "--data-2", "--data-p"], &files) {
            command.arg(flag).arg(path);
        }
        scene.place(&mut command);
        Process::spawn(Role::SbcGenerator.name(), command)
            .and_then(|process| process.finish(Instant::now() + self.timeout, || false))
            .map_err(|failure| format!("{}'s {failure}", member.name()))?;
        let read = |path| std::fs::read(path).map_err(io);
        let files: Vec<_> = files.iter().map(read).collect::<Result<_, _>>()?;
        let expected =
            [HALF_BLOCK_SIZE, BLOCK_SIZE].map(|size| HEADER_SIZE + content::BLOCKS * size);
        let length = files[0].len();
        let is_wrong = |file: &&Vec<u8>| file.len() != length || !expected.contains(&length);
        match files.iter().find(is_wrong) {
            Some(file) => Err(format!(
                "{}'s generator: expected files of {} bytes each, or of {}, got one of {}",
                member.name(),
                expected[0],
                expected[1],
                file.len()
            )),
            None => Ok(files),
        }
    }
}

impl Files {
    /// Damages a block of the first target.
    pub(super) fn corrupt(&mut self, layout: Layout) {
        let file = &mut self.targets[0];
        match layout {
            Layout::ZeroCopy => content::corrupt(file, BLOCK_SIZE),
            Layout::Gga => content::corrupt(&mut file[HEADER_SIZE..], self.block_size),
        }
    }

    /// Gives every block the content of the next one: what a session writes must not be there before, or nobody would notice
    /// that it was not written.
    pub(super) fn shift(&mut self, layout: Layout) {
        for file in &mut self.targets {
            match layout {
                Layout::ZeroCopy => file.rotate_left(BLOCK_SIZE),
                Layout::Gga => file[HEADER_SIZE..].rotate_left(self.block_size),
            }
        }
    }

    /// What the first target holds, without the header of its file.
    pub(super) fn first_content(&self, layout: Layout) -> &[u8] {
        match layout {
            Layout::ZeroCopy => &self.targets[0],
            Layout::Gga => &self.targets[0][HEADER_SIZE..],
        }
    }
}

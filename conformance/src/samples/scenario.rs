//! What a run of one sample, or of samples that talk to each other, consists of: data, no behaviour.
//!
//! Paths and arguments may name `{dir}`, the directory of the party itself, `{shared}`, the one around the directories of
//! all parties (`{shared}/sender` is the sender's), and `{port}`, a free TCP port.

use super::content::{Content, Stream};

/// One line of the table: processes that do something together.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Unique: the sample, or the main one of a pair, and after a colon what this run is about.
    pub name: String,
    /// The folder of the samples, `doca_rdma`.
    pub library: &'static str,
    /// Files that are there before anything starts.
    pub inputs: Vec<Input>,
    /// The processes, in the order in which they are looked at; each starts when its time has come.
    pub parties: Vec<Party>,
    /// What must be true when all have ended well.
    pub checks: Vec<Check>,
}

/// A file that a sample reads.
#[derive(Debug, Clone)]
pub struct Input {
    /// Where.
    pub path: String,
    /// What is in it.
    pub content: Content,
}

/// One process.
#[derive(Debug, Clone)]
pub struct Party {
    /// How others refer to it, and the name of its directory.
    pub name: String,
    /// The sample that it runs, without prefix: `rdma_send`.
    pub sample: &'static str,
    /// Which build of the sample.
    pub side: Side,
    /// Its command line.
    pub arguments: Vec<String>,
    /// It starts when all of these have happened; at once when there are none.
    pub starts: Vec<Event>,
    /// Done just before it starts.
    pub before: Vec<Step>,
    /// What it asks for, in order.
    pub replies: Vec<Reply>,
    /// What it must have written when it has ended.
    pub says: Vec<Said>,
    /// Whether lines of level error are part of what the sample shows.
    pub shows_errors: bool,
}

/// Which build of a sample a party needs: a few contain different code for the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Whichever there is.
    Any,
    /// Built for a host.
    Host,
    /// Built for a DPU.
    Dpu,
}

/// A fragment of a line, and how often it must come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// The fragment.
    pub text: String,
    /// At least so many lines have it.
    pub times: usize,
}

/// Something that a party has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It has written this.
    Says(String, Said),
    /// It has written something, and nothing for a while: for those who wait without saying so.
    Rests(String),
    /// It has ended, and well.
    Ends(String),
}

/// A prompt and the answer, which is Enter for all samples.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Fragment of the line that asks.
    pub prompt: String,
    /// What must have happened before the answer.
    pub when: Vec<Event>,
    /// What the user does before pressing Enter.
    pub steps: Vec<Step>,
}

/// What a user does with files.
#[derive(Debug, Clone)]
pub enum Step {
    /// Copies a file.
    Copy {
        /// From here.
        from: String,
        /// To there.
        to: String,
    },
    /// Deletes a file, which must be there.
    Remove(String),
}

/// What is looked at in the end.
#[derive(Debug, Clone)]
pub enum Check {
    /// A file has this content, to the byte.
    File {
        /// The file.
        path: String,
        /// What must be in it.
        content: Content,
    },
    /// A decoder that is not the one under test makes this content of the file.
    Decodes {
        /// The file.
        path: String,
        /// What it is in.
        stream: Stream,
        /// What must come out.
        content: Content,
    },
}

impl Scenario {
    pub(super) fn new(library: &'static str, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            library,
            inputs: Vec::new(),
            parties: Vec::new(),
            checks: Vec::new(),
        }
    }

    pub(super) fn input(mut self, path: impl Into<String>, content: Content) -> Self {
        let path = path.into();
        self.inputs.push(Input { path, content });
        self
    }

    pub(super) fn party(mut self, party: Party) -> Self {
        self.parties.push(party);
        self
    }

    pub(super) fn check(mut self, check: Check) -> Self {
        self.checks.push(check);
        self
    }

    /// The samples that take part, each once.
    pub fn samples(&self) -> Vec<&'static str> {
        let mut samples = Vec::new();
        for party in &self.parties {
            if !samples.contains(&party.sample) {
                samples.push(party.sample);
            }
        }
        samples
    }

    /// Whether `--only` means this one by its name, one of its samples, or its folder.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.library == name || self.samples().contains(&name)
    }
}

/// The line that every sample ends with.
const FAREWELL: &str = "Sample finished successfully";

impl Party {
    pub(super) fn new(name: impl Into<String>, sample: &'static str) -> Self {
        Self {
            name: name.into(),
            sample,
            side: Side::Any,
            arguments: Vec::new(),
            starts: Vec::new(),
            before: Vec::new(),
            replies: Vec::new(),
            says: vec![Said::once(FAREWELL)],
            shows_errors: false,
        }
    }

    pub(super) fn on(mut self, side: Side) -> Self {
        self.side = side;
        self
    }

    pub(super) fn arguments<A: Into<String>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(super) fn starts_when(mut self, event: Event) -> Self {
        self.starts.push(event);
        self
    }

    pub(super) fn before(mut self, step: Step) -> Self {
        self.before.push(step);
        self
    }

    pub(super) fn reply(mut self, reply: Reply) -> Self {
        self.replies.push(reply);
        self
    }

    pub(super) fn says(self, text: impl Into<String>) -> Self {
        self.says_times(text, 1)
    }

    pub(super) fn says_times(mut self, text: impl Into<String>, times: usize) -> Self {
        let text = text.into();
        self.says.push(Said { text, times });
        self
    }

    pub(super) fn shows_errors(mut self) -> Self {
        self.shows_errors = true;
        self
    }
}

impl Said {
    pub(super) fn once(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { text, times: 1 }
    }

    /// Whether these lines are enough.
    pub fn is_in<'l>(&self, lines: impl IntoIterator<Item = &'l str>) -> bool {
        let lines = lines.into_iter();
        lines.filter(|line| line.contains(&self.text)).count() >= self.times
    }
}

impl Event {
    pub(super) fn says(party: impl Into<String>, text: impl Into<String>) -> Self {
        Self::says_times(party, text, 1)
    }

    pub(super) fn says_times(
        party: impl Into<String>,
        text: impl Into<String>,
        times: usize,
    ) -> Self {
        let text = text.into();
        Self::Says(party.into(), Said { text, times })
    }

    pub(super) fn rests(party: impl Into<String>) -> Self {
        Self::Rests(party.into())
    }

    pub(super) fn ends(party: impl Into<String>) -> Self {
        Self::Ends(party.into())
    }

    /// Whose doing it is.
    pub fn party(&self) -> &str {
        match self {
            Self::Says(party, _) | Self::Rests(party) | Self::Ends(party) => party,
        }
    }
}

impl Reply {
    /// Enter, when a line with this fragment asks for it.
    pub(super) fn to(prompt: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            when: Vec::new(),
            steps: Vec::new(),
        }
    }

    pub(super) fn when(mut self, event: Event) -> Self {
        self.when.push(event);
        self
    }

    pub(super) fn copy(mut self, from: impl Into<String>, to: impl Into<String>) -> Self {
        self.steps.push(Step::copy(from, to));
        self
    }
}

impl Step {
    pub(super) fn copy(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self::Copy {
            from: from.into(),
            to: to.into(),
        }
    }
}

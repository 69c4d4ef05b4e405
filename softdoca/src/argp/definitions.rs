//! What a program has defined: parameters and commands.

use doca_abi::{doca_argp_cmd_cb_t, doca_argp_param_cb_t};

use super::ValueType;
use super::general;
use crate::error::{Error, Result};

/// A parameter.
#[derive(Debug, Default)]
pub struct Param {
    /// Name behind one dash; may have several letters.
    pub short: Option<String>,
    /// Name behind two dashes, and key in the JSON file.
    pub long: Option<String>,
    /// What its argument is called in the usage text.
    pub arguments: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Kind of its argument.
    pub value_type: Option<ValueType>,
    /// Called with each value.
    pub callback: doca_argp_param_cb_t,
    /// Must be given.
    pub mandatory: bool,
    /// May be given several times.
    pub multiple: bool,
    /// Not known in the JSON file.
    pub command_line_only: bool,
    /// Not together with any other parameter.
    pub singular: bool,
    /// Known to all commands below the one that it is registered for.
    pub inherited: bool,
    /// Not in the usage text.
    pub hidden: bool,
    registered: bool,
}

impl Param {
    /// The flag as users write it.
    pub fn flag(&self) -> String {
        match (&self.long, &self.short) {
            (Some(long), _) => format!("--{long}"),
            (None, Some(short)) => format!("-{short}"),
            (None, None) => String::new(),
        }
    }

    fn check(&self) -> Result<()> {
        let missing = match self {
            Param {
                short: None,
                long: None,
                ..
            } => "a name",
            Param {
                description: None, ..
            } => "a description",
            Param { callback: None, .. } => "a callback",
            Param {
                value_type: None, ..
            } => "a type",
            _ => return Ok(()),
        };
        Err(Error::Initialization.because(format_args!(
            "the parameter {} lacks {missing}",
            self.flag()
        )))
    }
}

/// A command, or the program itself.
#[derive(Debug, Default)]
pub struct Command {
    /// As users write it.
    pub name: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// Called when the command is named.
    pub callback: doca_argp_cmd_cb_t,
    /// Not in the usage text.
    pub hidden: bool,
    /// Its parameters, in the order of registration.
    pub params: Vec<ParamId>,
    /// Its inner commands.
    pub commands: Vec<CommandId>,
    registered: bool,
}

/// Names a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamId(usize);

/// Names a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandId(usize);

/// The commands that lead from the program to the one that was named, the outermost first.
pub type Scope = Vec<CommandId>;

/// Everything that a program has defined.
#[derive(Debug, Default)]
pub struct Definitions {
    /// Name in the usage text; else that of the program's file.
    pub program_name: Option<String>,
    /// Whether arguments before a `--` are DPDK's.
    pub with_dpdk: bool,
    /// Whether keys of the JSON file that no parameter has are ignored.
    pub ignores_unknown_keys: bool,
    root: Command,
    // Nothing is ever removed: a handle that C kept must stay harmless. `None` is what was destroyed.
    params: Vec<Option<Param>>,
    commands: Vec<Option<Command>>,
}

impl ParamId {
    /// A number larger than 0 that names the parameter.
    pub fn number(self) -> usize {
        self.0 + 1
    }
}

impl CommandId {
    /// A number larger than 0 that names the command.
    pub fn number(self) -> usize {
        self.0 + 1
    }
}

impl Definitions {
    /// A parameter without anything.
    pub fn create_param(&mut self) -> ParamId {
        self.params.push(Some(Param::default()));
        ParamId(self.params.len() - 1)
    }

    /// A command without anything.
    pub fn create_command(&mut self) -> CommandId {
        self.commands.push(Some(Command::default()));
        CommandId(self.commands.len() - 1)
    }

    /// The parameter with this number.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] when there is none.
    pub fn param_of(&self, number: usize) -> Result<ParamId> {
        let index = number.wrapping_sub(1);
        match self.params.get(index) {
            Some(Some(_)) => Ok(ParamId(index)),
            _ => Err(Error::InvalidValue.because("expected a parameter, got something else")),
        }
    }

    /// The command with this number.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] when there is none.
    pub fn command_of(&self, number: usize) -> Result<CommandId> {
        let index = number.wrapping_sub(1);
        match self.commands.get(index) {
            Some(Some(_)) => Ok(CommandId(index)),
            _ => Err(Error::InvalidValue.because("expected a command, got something else")),
        }
    }

    /// A parameter that has not been destroyed.
    pub fn param(&self, id: ParamId) -> &Param {
        self.params[id.0]
            .as_ref()
            .expect("only identifiers of living parameters are given out")
    }

    /// A command that has not been destroyed.
    pub fn command(&self, id: CommandId) -> &Command {
        self.commands[id.0]
            .as_ref()
            .expect("only identifiers of living commands are given out")
    }

    /// To set what a parameter has.
    pub fn param_mut(&mut self, id: ParamId) -> &mut Param {
        self.params[id.0]
            .as_mut()
            .expect("only identifiers of living parameters are given out")
    }

    /// To set what a command has.
    pub fn command_mut(&mut self, id: CommandId) -> &mut Command {
        self.commands[id.0]
            .as_mut()
            .expect("only identifiers of living commands are given out")
    }

    /// The program and the commands of a scope.
    pub fn chain<'a>(&'a self, scope: &'a Scope) -> impl DoubleEndedIterator<Item = &'a Command> {
        std::iter::once(&self.root).chain(scope.iter().map(|id| self.command(*id)))
    }

    /// The parameters that may stand behind the last command of a scope.
    pub fn visible(&self, scope: &Scope) -> Vec<ParamId> {
        let depth = scope.len();
        self.chain(scope)
            .enumerate()
            .flat_map(|(level, command)| command.params.iter().map(move |id| (level, *id)))
            .filter(|(level, id)| *level == depth || self.param(*id).inherited)
            .map(|(_, id)| id)
            .collect()
    }

    /// The commands that may follow the last one of a scope.
    pub fn following(&self, scope: &Scope) -> &[CommandId] {
        scope
            .last()
            .map_or(&self.root, |id| self.command(*id))
            .commands
            .as_slice()
    }

    /// Registers a parameter for a command, or for the program.
    ///
    /// # Errors
    /// [`Error::BadState`] when it or the command is registered already, [`Error::Initialization`] when something that it must have
    /// is missing, [`Error::InvalidValue`] when one of its names is taken.
    pub fn register_param(&mut self, command: Option<CommandId>, id: ParamId) -> Result<()> {
        let target = command.map_or(&self.root, |command| self.command(command));
        if self.param(id).registered || target.registered {
            return Err(Error::BadState.because("the parameter or command is registered already"));
        }
        let param = self.param(id);
        param.check()?;
        let taken = target.params.iter().any(|other| {
            let other = self.param(*other);
            let same = |a: &Option<String>, b: &Option<String>| a.is_some() && a == b;
            same(&param.short, &other.short) || same(&param.long, &other.long)
        });
        // A program's own flag takes the place of a short general one, but not of a long one, which is a key as well.
        if taken || general::is_long(param.long.as_deref()) {
            return Err(Error::InvalidValue.because(format_args!(
                "another parameter has a name of {} already",
                param.flag()
            )));
        }
        let param = self.param_mut(id);
        param.registered = true;
        param.command_line_only |= param.long.is_none();
        match command {
            Some(command) => self.command_mut(command).params.push(id),
            None => self.root.params.push(id),
        }
        Ok(())
    }

    /// Registers a command for another one, or for the program.
    ///
    /// # Errors
    /// As [`register_param`](Self::register_param).
    pub fn register_command(&mut self, outer: Option<CommandId>, id: CommandId) -> Result<()> {
        let target = outer.map_or(&self.root, |outer| self.command(outer));
        let command = self.command(id);
        if command.registered || target.registered {
            return Err(Error::BadState.because("one of the commands is registered already"));
        }
        if outer == Some(id) {
            return Err(
                Error::InvalidValue.because("a command cannot be an inner command of itself")
            );
        }
        if command.name.is_none() || command.description.is_none() {
            return Err(Error::Initialization.because(format_args!(
                "the command {} lacks a name or a description",
                command.name.as_deref().unwrap_or_default()
            )));
        }
        if target
            .commands
            .iter()
            .any(|other| self.command(*other).name == command.name)
        {
            return Err(Error::InvalidValue.because(format_args!(
                "there is a command {} already",
                command.name.as_deref().unwrap_or_default()
            )));
        }
        self.command_mut(id).registered = true;
        match outer {
            Some(outer) => self.command_mut(outer).commands.push(id),
            None => self.root.commands.push(id),
        }
        Ok(())
    }

    /// Destroys a parameter that nobody has registered.
    ///
    /// # Errors
    /// [`Error::BadState`] when it is registered.
    pub fn destroy_param(&mut self, id: ParamId) -> Result<()> {
        if self.param(id).registered {
            return Err(Error::BadState.because("a registered parameter belongs to the parser"));
        }
        self.params[id.0] = None;
        Ok(())
    }

    /// Destroys a command that nobody has registered.
    ///
    /// # Errors
    /// [`Error::BadState`] when it is registered.
    pub fn destroy_command(&mut self, id: CommandId) -> Result<()> {
        if self.command(id).registered {
            return Err(Error::BadState.because("a registered command belongs to the parser"));
        }
        self.commands[id.0] = None;
        Ok(())
    }
}

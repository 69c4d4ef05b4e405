//! Named sources of a program's messages, and the tree of loggers that their names form.
//!
//! A source `DPI::Parser` has the logger `DPI::Parser`, a child of the logger `DPI`. Loggers exist as long as the
//! process, so that a source that is registered again gets its previous level.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Level;
use crate::error::{Error, Result};

/// Separator of the parts of a name.
const SEPARATOR: &str = "::";

/// Maximum length of a name in bytes; longer names are truncated.
pub const MAX_NAME: usize = doca_abi::DOCA_LOGGER_NAME_SIZE - 1;

/// A source of messages, or an inner node of the tree of names.
#[derive(Debug)]
pub struct Logger {
    name: String,
    /// Least severe level that is passed to back ends.
    level: AtomicU32,
}

impl Logger {
    /// Full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Least severe level that is passed to back ends.
    pub fn level(&self) -> Level {
        Level::from_value(self.level.load(Ordering::Relaxed)).unwrap_or(Level::Trace)
    }

    fn set_level(&self, level: Level) {
        self.level.store(level as u32, Ordering::Relaxed);
    }

    /// Number of name parts below `root`; `None` if it is not a descendant.
    fn depth_below(&self, root: Option<&Logger>) -> Option<usize> {
        let below = match root {
            None => Some(self.name.as_str()),
            Some(root) => self
                .name
                .strip_prefix(root.name.as_str())
                .and_then(|rest| rest.strip_prefix(SEPARATOR)),
        };
        below.map(|below| below.split(SEPARATOR).count())
    }
}

struct Registry {
    /// The identifier is the index + 1; 0 is an unregistered source.
    sources: Vec<Option<Arc<Logger>>>,
    loggers: Vec<Arc<Logger>>,
    /// Level of new top-level loggers.
    level: Level,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    sources: Vec::new(),
    loggers: Vec::new(),
    level: Level::Trace,
});

/// `true` once a level has been set: before that, messages pass without a look-up of their source.
static LIMITED: AtomicBool = AtomicBool::new(false);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Returns the logger with this name; creates it and its ancestors if needed. New loggers inherit the level of
    /// their parent.
    fn logger(&mut self, name: &str) -> Arc<Logger> {
        if let Some(known) = self.loggers.iter().find(|logger| logger.name == name) {
            return Arc::clone(known);
        }
        let level = match name.rsplit_once(SEPARATOR) {
            Some((above, _)) => self.logger(above).level(),
            None => self.level,
        };
        let logger = Arc::new(Logger {
            name: name.to_owned(),
            level: AtomicU32::new(level as u32),
        });
        self.loggers.push(Arc::clone(&logger));
        logger
    }
}

/// Registers a source. Returns its identifier, at least 1.
///
/// # Errors
/// [`Error::NoMemory`] if the identifiers are exhausted.
pub fn register(name: &str) -> Result<i32> {
    let mut registry = registry();
    let free = registry.sources.iter().position(Option::is_none);
    let index = free.unwrap_or_else(|| {
        registry.sources.push(None);
        registry.sources.len() - 1
    });
    let identifier = i32::try_from(index + 1).map_err(|_| Error::NoMemory)?;
    let logger = registry.logger(&name[..name.floor_char_boundary(MAX_NAME)]);
    registry.sources[index] = Some(logger);
    Ok(identifier)
}

/// Removes a source; its logger is kept.
///
/// # Errors
/// [`Error::InvalidValue`] for an unknown identifier.
pub fn unregister(identifier: i32) -> Result<()> {
    usize::try_from(identifier)
        .ok()
        .and_then(|identifier| {
            registry()
                .sources
                .get_mut(identifier.checked_sub(1)?)?
                .take()
        })
        .map(drop)
        .ok_or_else(|| {
            Error::InvalidValue.because(format_args!(
                "no log source has the identifier {identifier}"
            ))
        })
}

/// `true` if back ends get messages of this level from a source. Messages of unknown sources pass, so that they are not
/// lost.
pub fn passes(identifier: i32, level: Level) -> bool {
    if !LIMITED.load(Ordering::Relaxed) {
        return true;
    }
    let registry = registry();
    usize::try_from(identifier)
        .ok()
        .and_then(|identifier| registry.sources.get(identifier.checked_sub(1)?)?.as_deref())
        .is_none_or(|logger| level <= logger.level())
}

/// The descendants of a logger, or all loggers, in the order of their registration; at most `depth` levels deep, 0 for
/// no limit.
pub fn below(root: Option<&Logger>, depth: u8) -> Vec<Arc<Logger>> {
    let loggers = &registry().loggers;
    let wanted = |logger: &&Arc<Logger>| {
        logger
            .depth_below(root)
            .is_some_and(|below| depth == 0 || below <= usize::from(depth))
    };
    loggers.iter().filter(wanted).cloned().collect()
}

/// The logger at this address.
///
/// # Errors
/// [`Error::NotFound`] if there is no logger at this address.
pub fn at(address: *const Logger) -> Result<Arc<Logger>> {
    registry()
        .loggers
        .iter()
        .find(|logger| std::ptr::eq(Arc::as_ptr(logger), address))
        .cloned()
        .ok_or_else(|| Error::NotFound.because("expected a logger, got something else"))
}

/// Sets the level of a logger; with `propagate`, also of its descendants. Without a logger, sets that of all present
/// and future loggers.
///
/// # Errors
/// [`Error::InvalidValue`] for all loggers without `propagate`.
pub fn set_level(root: Option<&Logger>, level: Level, propagate: bool) -> Result<()> {
    if root.is_none() && !propagate {
        return Err(Error::InvalidValue
            .because("expected a logger, or propagation to all of them; got neither"));
    }
    if let Some(logger) = root {
        logger.set_level(level);
    }
    if propagate {
        let mut registry = registry();
        if root.is_none() {
            registry.level = level;
        }
        for logger in &registry.loggers {
            if logger.depth_below(root).is_some() {
                logger.set_level(level);
            }
        }
    }
    LIMITED.store(true, Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_unique_while_they_live() {
        let (a, b) = (register("A").unwrap(), register("A").unwrap());
        assert!(a > 0 && b > 0 && a != b);
        assert_eq!(unregister(a), Ok(()));
        assert_eq!(unregister(a), Err(Error::InvalidValue));
        assert_eq!(unregister(0), Err(Error::InvalidValue));
        assert_eq!(unregister(-1), Err(Error::InvalidValue));
        assert_eq!(unregister(b), Ok(()));
    }

    fn named(name: &str) -> Arc<Logger> {
        let all = below(None, 0);
        let found = all.iter().find(|logger| logger.name() == name);
        Arc::clone(found.unwrap_or_else(|| panic!("no logger {name}")))
    }

    fn names(root: &str, depth: u8) -> Vec<String> {
        below(Some(&named(root)), depth)
            .iter()
            .map(|logger| logger.name().to_owned())
            .collect()
    }

    #[test]
    fn loggers_form_a_tree_of_name_parts() {
        let parser = register("TREE::DPI::Parser").unwrap();
        register("TREE::DPI").unwrap();
        register("TREE::Other").unwrap();
        register("TREEHOUSE").unwrap();
        assert_eq!(
            names("TREE", 0),
            ["TREE::DPI", "TREE::DPI::Parser", "TREE::Other"]
        );
        assert_eq!(names("TREE", 1), ["TREE::DPI", "TREE::Other"]);
        assert_eq!(names("TREE::Other", 0), [""; 0]);
        assert!(below(None, 1).iter().any(|logger| logger.name() == "TREE"));

        let dpi = named("TREE::DPI");
        assert_eq!(at(Arc::as_ptr(&dpi)).unwrap().name(), "TREE::DPI");
        assert_eq!(at(std::ptr::null()).unwrap_err(), Error::NotFound);
        assert_eq!(
            set_level(None, Level::Info, false),
            Err(Error::InvalidValue)
        );
        set_level(Some(&dpi), Level::Warning, false).unwrap();
        assert!(passes(parser, Level::Trace), "not propagated");
        set_level(Some(&dpi), Level::Warning, true).unwrap();
        assert!(!passes(parser, Level::Info) && passes(parser, Level::Warning));
        assert!(passes(0, Level::Trace) && passes(-7, Level::Trace) && passes(9999, Level::Trace));
        // A source that is registered later inherits the level, and a source that is registered again regains its own.
        let late = register("TREE::DPI::Late").unwrap();
        assert!(!passes(late, Level::Info));
        unregister(parser).unwrap();
        let again = register("TREE::DPI::Parser").unwrap();
        assert!(!passes(again, Level::Info));
        assert_eq!(named("TREE::Other").level(), Level::Trace);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = format!("{}é", "x".repeat(MAX_NAME - 1));
        register(&name).unwrap();
        assert_eq!(named(&name[..MAX_NAME - 1]).name().len(), MAX_NAME - 1);
    }
}

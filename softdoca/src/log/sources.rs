//! Named sources of a program's messages.

use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

/// Index + 1 is the identifier: 0 is what a source has that was never registered.
static SOURCES: Mutex<Vec<Option<String>>> = Mutex::new(Vec::new());

/// Registers a source; answers its identifier, which is larger than 0.
///
/// # Errors
/// [`Error::NoMemory`] when there are more sources than identifiers.
pub fn register(name: &str) -> Result<i32> {
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    let free = sources.iter().position(Option::is_none);
    let index = free.unwrap_or_else(|| {
        sources.push(None);
        sources.len() - 1
    });
    let identifier = i32::try_from(index + 1).map_err(|_| Error::NoMemory)?;
    sources[index] = Some(name.to_owned());
    Ok(identifier)
}

/// Removes a source.
///
/// # Errors
/// [`Error::InvalidValue`] when there is none with this identifier.
pub fn unregister(identifier: i32) -> Result<()> {
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    usize::try_from(identifier)
        .ok()
        .and_then(|identifier| sources.get_mut(identifier.checked_sub(1)?)?.take())
        .map(drop)
        .ok_or_else(|| {
            Error::InvalidValue.because(format_args!(
                "no log source has the identifier {identifier}"
            ))
        })
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
}

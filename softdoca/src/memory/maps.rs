//! Parser of `/proc/self/maps`.

use crate::error::{Error, Result};

/// One line: pages of one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area<'a> {
    pub start: u64,
    pub end: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// 0 without a file.
    pub inode: u64,
    /// File name, name in brackets, or empty.
    pub name: &'a str,
}

impl Area<'_> {
    /// Returns `true` for private anonymous memory: pages of malloc and of anonymous mmap. Not for a stack, which
    /// grows, and would be in use while it is copied.
    pub fn is_private_memory(&self) -> bool {
        let named_as_memory =
            self.name.is_empty() || self.name == "[heap]" || self.name.starts_with("[anon:");
        !self.shared
            && self.inode == 0
            && self.readable
            && self.writable
            && !self.executable
            && named_as_memory
    }
}

/// Contents of the file, for [`parse`].
pub(super) fn read() -> Result<String> {
    let bytes = std::fs::read("/proc/self/maps").map_err(|error| {
        Error::OperatingSystem.because(format_args!(
            "cannot read /proc/self/maps: {error}; is /proc mounted?"
        ))
    })?;
    // File names can be any bytes.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the areas, in ascending order.
pub(super) fn parse(text: &str) -> Result<Vec<Area<'_>>> {
    text.lines()
        .map(|line| {
            area(line).ok_or_else(|| {
                Error::OperatingSystem.because(format_args!(
                    "/proc/self/maps has a line of unknown form: {line:?}"
                ))
            })
        })
        .collect()
}

fn area(line: &str) -> Option<Area<'_>> {
    let mut rest = line;
    let mut field = || {
        let (field, tail) = rest
            .trim_start_matches(' ')
            .split_once(' ')
            .unwrap_or((rest, ""));
        rest = tail;
        field
    };
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = field().split_once('-')?;
    let &[read, write, execute, share] = field().as_bytes() else {
        return None;
    };
    let offset = field();
    let (major, minor) = field().split_once(':')?;
    let inode = field().parse().ok()?;
    Some(Area {
        start: hex(start)?,
        end: hex(end)?,
        readable: read == b'r',
        writable: write == b'w',
        executable: execute == b'x',
        shared: share == b's',
        offset: hex(offset)?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode,
        name: rest.trim_start_matches(' '),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c9c00000-55d0c9c21000 r-xp 00002000 fd:01 1234567                    /usr/bin/some name with blanks
55d0ca000000-55d0ca021000 rw-p 00000000 00:00 0                          [heap]
7f0000000000-7f0000021000 rw-p 00000000 00:00 0
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
7f0010000000-7f0010002000 rw-s 00003000 00:01 42                         /memfd:softdoca (deleted)
7f0010002000-7f0010004000 rw-p 00000000 00:00 0                          [anon:arena]
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn every_kind_of_maps_line_is_parsed() {
        let areas = parse(TEXT).unwrap();
        assert_eq!(areas.len(), 8);
        assert_eq!(areas[0].name, "/usr/bin/some name with blanks");
        assert_eq!(
            (areas[0].offset, areas[0].device, areas[0].inode),
            (0x2000, (0xfd, 1), 1_234_567)
        );
        assert_eq!(
            (areas[4].offset, areas[4].shared, areas[4].inode),
            (0x3000, true, 42)
        );
        assert_eq!(areas[7].end, 0xffff_ffff_ff60_1000);
        let private: Vec<_> = areas.iter().map(Area::is_private_memory).collect();
        assert_eq!(
            private,
            [false, true, true, false, false, true, false, false]
        );
    }

    #[test]
    fn malformed_maps_lines_are_errors() {
        for line in [
            "",
            "x",
            "1-2 rw-p 0 0:0",
            "1-2 rw 0 0:0 0",
            "1-g rw-p 0 0:0 0",
            "1-2 rw-p 0 00 0",
        ] {
            assert_eq!(area(line), None, "{line}");
        }
    }

    #[test]
    fn maps_of_this_process_are_parsed() {
        let local = 0_u8;
        let addr = (&raw const local).addr() as u64;
        let text = read().unwrap();
        let areas = parse(&text).unwrap();
        assert!(
            areas
                .iter()
                .any(|area| (area.start..area.end).contains(&addr))
        );
        assert!(areas.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }
}

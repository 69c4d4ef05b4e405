//! The sending end of a ring in hands that follow no protocol. Rings are written as `ring/layout.rs` documents them, without its code.

use std::os::fd::OwnedFd;

use proptest::prelude::*;

pub(crate) const IS_INLINE: u32 = 1 << 23;
pub(crate) const HAS_MORE: u32 = 1 << 30;
pub(crate) const HAS_IMMEDIATE: u32 = 1 << 31;

/// Something that a peer may do to a ring.
#[derive(Debug, Clone)]
pub(crate) enum RingStep {
    /// Puts a descriptor and 56 bytes into the next slot.
    Fragment { descriptor: u32, byte: u8 },
    /// Overwrites 8 bytes of the ring's header or slots.
    Word { at: u16, value: u64 },
    /// Marks its end as closed.
    Close,
}

/// Descriptors of fragments: mostly of lengths that rings allow, as the others end the connection at once.
fn descriptors() -> impl Strategy<Value = u32> {
    let lengths = prop_oneof![
        Just(0_u32),
        1..=64_u32,
        Just(64_u32),
        65..=16_384_u32,
        16_385..=0x7f_ffff_u32
    ];
    let immediates = prop_oneof![
        4 => Just(None),
        2 => Just(Some(4)),
        2 => Just(Some(8)),
        2 => (0..=63_u32).prop_map(Some),
    ];
    let sound =
        (lengths, immediates, any::<bool>(), any::<bool>()).prop_map(|(len, imm, inline, more)| {
            let flag = |set: bool, bit: u32| if set { bit } else { 0 };
            let immediate = imm.map_or(0, |len| len << 24 | HAS_IMMEDIATE);
            // A slot holds 64 bytes, immediate data included.
            let inline = inline && len + imm.unwrap_or(0) <= 64;
            len | immediate | flag(inline, IS_INLINE) | flag(more, HAS_MORE)
        });
    prop_oneof![9 => sound, 1 => any::<u32>()]
}

pub(crate) fn ring_step() -> impl Strategy<Value = RingStep> {
    prop_oneof![
        12 => (descriptors(), any::<u8>())
            .prop_map(|(descriptor, byte)| RingStep::Fragment { descriptor, byte }),
        1 => (0..600_u16, any::<u64>()).prop_map(|(at, value)| RingStep::Word { at, value }),
        1 => Just(RingStep::Close),
    ]
}

/// A ring that somebody else receives from.
pub(crate) struct RawRing {
    pub(crate) fd: OwnedFd,
    pub(crate) slots: u64,
    position: u64,
}

impl RawRing {
    pub(crate) fn new(fd: OwnedFd) -> RawRing {
        let mut slots = [0; 8];
        rustix::io::pread(&fd, &mut slots, 8).expect("a readable ring");
        RawRing {
            fd,
            slots: u64::from_ne_bytes(slots),
            position: 0,
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.fd, bytes, at).expect("a writable ring");
    }

    pub(crate) fn fragment(&mut self, descriptor: u32, byte: u8) {
        let at = 512 + self.position % self.slots * 64;
        let lap = (self.position / self.slots) << 1 | 1;
        self.put(at + 8, &[byte; 56]);
        self.put(at, &(u64::from(descriptor) | lap << 32).to_ne_bytes());
        self.position += 1;
    }

    pub(crate) fn perform(&mut self, step: &RingStep) {
        match step {
            RingStep::Fragment { descriptor, byte } => self.fragment(*descriptor, *byte),
            RingStep::Word { at, value } => self.put(u64::from(*at) * 8, &value.to_ne_bytes()),
            RingStep::Close => self.put(64, &1_u64.to_ne_bytes()),
        }
    }
}

//! Filters of system calls, which are programs of the classic packet filter: the verdict for a call is found by running
//! them.

/// An instruction, as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Instruction {
    pub code: u16,
    pub when_true: u8,
    pub when_false: u8,
    pub operand: u32,
}

/// A call as a filter sees it: number, architecture, place, arguments.
pub struct Call([u32; 16]);

/// The architecture of this machine's calls.
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else {
    0xc000_00b7
};

impl Call {
    /// A call of this architecture.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a filter sees halves of words, and numbers are small"
    )]
    pub fn new(number: libc::c_long, arguments: [usize; 6]) -> Self {
        let mut words = [
            number as u32,
            ARCHITECTURE,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
        ];
        for (pair, argument) in words[4..].chunks_exact_mut(2).zip(arguments) {
            if let [low, high] = pair {
                (*low, *high) = (argument as u32, (argument as u64 >> 32) as u32);
            }
        }
        Self(words)
    }

    fn word(&self, at: u32) -> Option<u32> {
        let aligned = at.is_multiple_of(4);
        self.0.get(at as usize / 4).copied().filter(|_| aligned)
    }
}

/// Classes of instructions (the lowest bits of a code) and the fields within them.
mod code {
    pub const CLASS: u16 = 0x07;
    pub const LOAD: u16 = 0x00;
    pub const LOAD_INDEX: u16 = 0x01;
    pub const STORE: u16 = 0x02;
    pub const STORE_INDEX: u16 = 0x03;
    pub const ARITHMETIC: u16 = 0x04;
    pub const JUMP: u16 = 0x05;
    pub const RETURN: u16 = 0x06;
    pub const MODE: u16 = 0xe0;
    pub const IMMEDIATE: u16 = 0x00;
    pub const ABSOLUTE: u16 = 0x20;
    pub const MEMORY: u16 = 0x60;
    pub const LENGTH: u16 = 0x80;
    pub const OPERATION: u16 = 0xf0;
    pub const FROM_INDEX: u16 = 0x08;
    pub const FROM_ACCUMULATOR: u16 = 0x10;
    pub const TO_ACCUMULATOR: u16 = 0x80;
}

/// Verdicts under which a call is made as without a filter.
const ALLOWED: [u32; 2] = [0x7fff_0000, 0x7ffc_0000];
const VERDICT: u32 = 0xffff_0000;

/// A filter.
pub struct Filter(Vec<Instruction>);

/// The registers and memory of a filter.
#[derive(Default)]
struct State {
    accumulator: u32,
    index: u32,
    memory: [u32; 16],
}

/// How a filter goes on after an instruction.
enum Next {
    Skip(u32),
    Return(u32),
}

impl Filter {
    pub const fn new(instructions: Vec<Instruction>) -> Self {
        Self(instructions)
    }

    /// Whether the filter allows the call. A program that is no valid filter allows nothing.
    pub fn allows(&self, call: &Call) -> bool {
        let mut state = State::default();
        let mut at = 0_usize;
        // Jumps lead forward only.
        while let Some(instruction) = self.0.get(at) {
            match state.step(instruction, call) {
                Some(Next::Skip(count)) => at = at.saturating_add(count as usize).saturating_add(1),
                Some(Next::Return(verdict)) => return ALLOWED.contains(&(verdict & VERDICT)),
                None => return false,
            }
        }
        false
    }
}

impl State {
    fn step(&mut self, instruction: &Instruction, call: &Call) -> Option<Next> {
        let Instruction { code, operand, .. } = *instruction;
        match code & code::CLASS {
            code::LOAD => self.accumulator = self.load(code, operand, call)?,
            code::LOAD_INDEX => self.index = self.load(code, operand, call)?,
            code::STORE => *self.memory.get_mut(operand as usize)? = self.accumulator,
            code::STORE_INDEX => *self.memory.get_mut(operand as usize)? = self.index,
            code::ARITHMETIC => self.accumulator = self.compute(code, operand)?,
            code::JUMP => return self.jump(instruction).map(Next::Skip),
            code::RETURN if code & 0x18 == code::FROM_ACCUMULATOR => {
                return Some(Next::Return(self.accumulator));
            }
            code::RETURN => return Some(Next::Return(operand)),
            _ if code & 0xf8 == code::TO_ACCUMULATOR => self.accumulator = self.index,
            _ => self.index = self.accumulator,
        }
        Some(Next::Skip(0))
    }

    fn load(&self, code: u16, operand: u32, call: &Call) -> Option<u32> {
        match code & code::MODE {
            code::IMMEDIATE => Some(operand),
            code::ABSOLUTE => call.word(operand),
            code::MEMORY => self.memory.get(operand as usize).copied(),
            code::LENGTH => u32::try_from(size_of::<Call>()).ok(),
            _ => None,
        }
    }

    const fn operand(&self, code: u16, operand: u32) -> u32 {
        if code & code::FROM_INDEX != 0 {
            self.index
        } else {
            operand
        }
    }

    fn compute(&self, code: u16, operand: u32) -> Option<u32> {
        let (a, b) = (self.accumulator, self.operand(code, operand));
        Some(match code & code::OPERATION {
            0x00 => a.wrapping_add(b),
            0x10 => a.wrapping_sub(b),
            0x20 => a.wrapping_mul(b),
            // Division by zero ends the filter with a verdict of 0.
            0x30 => a.checked_div(b)?,
            0x40 => a | b,
            0x50 => a & b,
            0x60 => a.checked_shl(b).unwrap_or(0),
            0x70 => a.checked_shr(b).unwrap_or(0),
            0x80 => a.wrapping_neg(),
            0xa0 => a ^ b,
            _ => return None,
        })
    }

    fn jump(&self, instruction: &Instruction) -> Option<u32> {
        let Instruction { code, operand, .. } = *instruction;
        let (a, b) = (self.accumulator, self.operand(code, operand));
        let holds = match code & code::OPERATION {
            0x00 => return Some(operand),
            0x10 => a == b,
            0x20 => a > b,
            0x30 => a >= b,
            0x40 => a & b != 0,
            _ => return None,
        };
        Some(u32::from(if holds {
            instruction.when_true
        } else {
            instruction.when_false
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{ARCHITECTURE, Call, Filter, Instruction};

    const ALLOW: u32 = 0x7fff_0000;
    const KILL: u32 = 0x8000_0000;

    const fn one(code: u16, when_true: u8, when_false: u8, operand: u32) -> Instruction {
        Instruction {
            code,
            when_true,
            when_false,
            operand,
        }
    }

    #[test]
    fn a_list_of_calls() {
        let filter = Filter::new(vec![
            one(0x20, 0, 0, 4),
            one(0x15, 1, 0, ARCHITECTURE),
            one(0x06, 0, 0, KILL),
            one(0x20, 0, 0, 0),
            one(0x15, 0, 1, 7),
            one(0x06, 0, 0, ALLOW),
            one(0x06, 0, 0, KILL),
        ]);
        assert!(filter.allows(&Call::new(7, [0; 6])));
        assert!(!filter.allows(&Call::new(8, [0; 6])));
    }

    #[test]
    fn arguments_and_masks() {
        // The lower half of the second argument, without the bits of a mask, is 5; the upper half is 1.
        let filter = Filter::new(vec![
            one(0x20, 0, 0, 24),
            one(0x54, 0, 0, 0xff),
            one(0x15, 0, 3, 5),
            one(0x20, 0, 0, 28),
            one(0x15, 0, 1, 1),
            one(0x06, 0, 0, ALLOW),
            one(0x06, 0, 0, 0x0005_0001),
        ]);
        let with = |argument| Call::new(1, [0, argument, 0, 0, 0, 0]);
        assert!(filter.allows(&with(0x1_0000_ab05)));
        assert!(!filter.allows(&with(0x1_0000_ab06)));
        assert!(!filter.allows(&with(5)));
    }

    #[test]
    fn memory_index_and_jumps() {
        let filter = Filter::new(vec![
            one(0x00, 0, 0, 3),
            one(0x02, 0, 0, 2),
            one(0x61, 0, 0, 2),
            one(0x20, 0, 0, 0),
            one(0x0c, 0, 0, 0),
            one(0x05, 0, 0, 1),
            one(0x06, 0, 0, KILL),
            one(0x35, 0, 1, 10),
            one(0x06, 0, 0, ALLOW),
            one(0x06, 0, 0, KILL),
        ]);
        assert!(filter.allows(&Call::new(7, [0; 6])));
        assert!(!filter.allows(&Call::new(6, [0; 6])));
    }

    #[test]
    fn what_is_no_filter_allows_nothing() {
        assert!(!Filter::new(Vec::new()).allows(&Call::new(1, [0; 6])));
        assert!(!Filter::new(vec![one(0x20, 0, 0, 64)]).allows(&Call::new(1, [0; 6])));
        assert!(!Filter::new(vec![one(0x34, 0, 0, 0)]).allows(&Call::new(1, [0; 6])));
    }
}

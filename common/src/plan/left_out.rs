//! Ops that this program is built without.
//!
//! Programs of small boards are built without the features `conv` and `full`. `FAIRTIER_WITHOUT=Gru,Gelu` at build time leaves
//! out single ops as well. `scripts/firmware --prices` finds with it what each op takes in flash.

use super::{Activation, Arrange, Op};

/// The ops that can be left out one by one. `scripts/firmware --prices` reads the names from here.
const NAMES: [&str; 30] = [
    "Conv",
    "Pool",
    "Embed",
    "Gru",
    "Recurrent",
    "Norm",
    "Standardize",
    "BatchNorm",
    "PRelu",
    "Arithmetic",
    "Concat",
    "Part",
    "Pad",
    "Transpose",
    "Gate",
    "LeakyRelu",
    "Sigmoid",
    "Tanh",
    "Gelu",
    "GeluTanh",
    "Silu",
    "Mish",
    "HardSwish",
    "HardSigmoid",
    "Clip",
    "Elu",
    "Selu",
    "Celu",
    "Softplus",
    "Softsign",
];

const WITHOUT: &[u8] = match option_env!("FAIRTIER_WITHOUT") {
    Some(names) => names.as_bytes(),
    None => b"",
};

const _: () = assert!(all_known(WITHOUT), "FAIRTIER_WITHOUT names an op that cannot be left out");

/// [`is_without`] as a constant, so that the compiler removes the code.
macro_rules! lacks {
    ($name:literal) => {
        const { is_without($name) }
    };
}

impl Op {
    /// True if this program was built without the op. Boards leave out ops that their models do not use.
    #[inline(always)]
    pub fn is_left_out(&self) -> bool {
        match self {
            Self::Conv(_) => lacks!("Conv"),
            Self::Pool(_) => lacks!("Pool"),
            Self::Activate { kind, .. } => kind.is_left_out(),
            Self::Embed { .. } => lacks!("Embed"),
            Self::Gru(_) => lacks!("Gru"),
            Self::Norm(_) => lacks!("Norm"),
            Self::BatchNorm { .. } => lacks!("BatchNorm"),
            Self::PRelu(_) => lacks!("PRelu"),
            Self::Arithmetic(_) => lacks!("Arithmetic"),
            Self::Recurrent(_) => lacks!("Recurrent"),
            Self::Arrange(arrange) => arrange.is_left_out(),
            Self::Gate(_) => lacks!("Gate"),
            Self::Standardize(_) => lacks!("Standardize"),
            Self::Dense { .. }
            | Self::Add { .. }
            | Self::Dropout { .. }
            | Self::Scale { .. }
            | Self::Last { .. } => false,
        }
    }
}

impl Activation {
    /// True if this program was built without the function.
    #[inline(always)]
    pub fn is_left_out(self) -> bool {
        match self {
            Self::Relu => false,
            Self::LeakyRelu { .. } => lacks!("LeakyRelu"),
            Self::Sigmoid => lacks!("Sigmoid"),
            Self::Tanh => lacks!("Tanh"),
            Self::Gelu => lacks!("Gelu"),
            Self::GeluTanh => lacks!("GeluTanh"),
            Self::Silu => lacks!("Silu"),
            Self::Mish => lacks!("Mish"),
            Self::HardSwish => lacks!("HardSwish"),
            Self::HardSigmoid { .. } => lacks!("HardSigmoid"),
            Self::Clip { .. } => lacks!("Clip"),
            Self::Elu { .. } => lacks!("Elu"),
            Self::Selu => lacks!("Selu"),
            Self::Celu { .. } => lacks!("Celu"),
            Self::Softplus => lacks!("Softplus"),
            Self::Softsign => lacks!("Softsign"),
        }
    }
}

impl Arrange {
    /// True if this program was built without the op.
    #[inline(always)]
    pub fn is_left_out(&self) -> bool {
        match self {
            Self::Concat { .. } => lacks!("Concat"),
            Self::Part { .. } => lacks!("Part"),
            Self::Pad { .. } => lacks!("Pad"),
            Self::Transpose { .. } => lacks!("Transpose"),
        }
    }
}

/// True if this program was built without the op: its feature is missing (`conv` for convolutions and pools, else `full`), or it
/// is one of those in `FAIRTIER_WITHOUT`. For constants: the compiler then removes code.
///
/// # Panics
///
/// If no op that can be left out has this name.
pub const fn is_without(name: &str) -> bool {
    assert!(is_one_of(name.as_bytes(), &NAMES), "the name is missing in NAMES");
    let convolves = is_one_of(name.as_bytes(), &["Conv", "Pool"]);
    let has_feature = cfg!(feature = "full") || (convolves && cfg!(feature = "conv"));
    !has_feature || lists(WITHOUT, name.as_bytes())
}

/// True if the name is one of a list with commas.
const fn lists(list: &[u8], name: &[u8]) -> bool {
    let mut start = 0;
    while start < list.len() {
        let word = word(list, start);
        if same(word, name) {
            return true;
        }
        start += word.len() + 1;
    }
    false
}

const fn all_known(list: &[u8]) -> bool {
    let mut start = 0;
    while start < list.len() {
        let word = word(list, start);
        if !is_one_of(word, &NAMES) {
            return false;
        }
        start += word.len() + 1;
    }
    true
}

/// The name that begins at `start`, up to a comma.
const fn word(list: &[u8], start: usize) -> &[u8] {
    let mut end = start;
    while end < list.len() && list[end] != b',' {
        end += 1;
    }
    list.split_at(end).0.split_at(start).1
}

const fn is_one_of(word: &[u8], names: &[&str]) -> bool {
    let mut index = 0;
    while index < names.len() {
        if same(word, names[index].as_bytes()) {
            return true;
        }
        index += 1;
    }
    false
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_list() {
        assert!(lists(b"Gru,Gelu", b"Gru") && lists(b"Gru,Gelu", b"Gelu"));
        assert!(!lists(b"Gru,GeluTanh", b"Gelu") && !lists(b"", b"Gelu") && !lists(b"Gelu", b"GeluTanh"));
        assert!(all_known(b"") && all_known(b"Gru") && all_known(b"Gru,Gelu"));
        assert!(!all_known(b"Gruu") && !all_known(b"Gru,,Gelu") && !all_known(b"Gru, Gelu"));
    }
}

//! Ops that this program is built without.
//!
//! Programs of small boards are built without the features `conv` and `full`. `FAIRTIER_WITHOUT=Gru,Gelu` at build time leaves
//! out single ops as well. `scripts/op-prices` finds with it what each op takes in flash.

use super::{Activation, Arrange, Op};

/// The ops that can be left out one by one. `scripts/op-prices` reads the names from here.
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

const _: () = assert!(all_known(), "FAIRTIER_WITHOUT names an op that cannot be left out");

/// True without the feature, or where the op is named by `FAIRTIER_WITHOUT`. A constant, so that the compiler removes the code.
macro_rules! lacks {
    ($feature:literal, $name:literal) => {
        const { !cfg!(feature = $feature) || is_named($name) }
    };
}

impl Op {
    /// True if this program was built without the op. Boards leave out ops that their models do not use.
    #[inline(always)]
    pub fn is_left_out(&self) -> bool {
        match self {
            Self::Conv(_) => lacks!("conv", "Conv"),
            Self::Pool(_) => lacks!("conv", "Pool"),
            Self::Activate { kind, .. } => kind.is_left_out(),
            Self::Embed { .. } => lacks!("full", "Embed"),
            Self::Gru(_) => lacks!("full", "Gru"),
            Self::Norm(_) => lacks!("full", "Norm"),
            Self::BatchNorm { .. } => lacks!("full", "BatchNorm"),
            Self::PRelu(_) => lacks!("full", "PRelu"),
            Self::Arithmetic(_) => lacks!("full", "Arithmetic"),
            Self::Recurrent(_) => lacks!("full", "Recurrent"),
            Self::Arrange(arrange) => arrange.is_left_out(),
            Self::Gate(_) => lacks!("full", "Gate"),
            Self::Standardize(_) => lacks!("full", "Standardize"),
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
            Self::LeakyRelu { .. } => lacks!("full", "LeakyRelu"),
            Self::Sigmoid => lacks!("full", "Sigmoid"),
            Self::Tanh => lacks!("full", "Tanh"),
            Self::Gelu => lacks!("full", "Gelu"),
            Self::GeluTanh => lacks!("full", "GeluTanh"),
            Self::Silu => lacks!("full", "Silu"),
            Self::Mish => lacks!("full", "Mish"),
            Self::HardSwish => lacks!("full", "HardSwish"),
            Self::HardSigmoid { .. } => lacks!("full", "HardSigmoid"),
            Self::Clip { .. } => lacks!("full", "Clip"),
            Self::Elu { .. } => lacks!("full", "Elu"),
            Self::Selu => lacks!("full", "Selu"),
            Self::Celu { .. } => lacks!("full", "Celu"),
            Self::Softplus => lacks!("full", "Softplus"),
            Self::Softsign => lacks!("full", "Softsign"),
        }
    }
}

impl Arrange {
    /// True if this program was built without the op.
    #[inline(always)]
    pub fn is_left_out(&self) -> bool {
        match self {
            Self::Concat { .. } => lacks!("full", "Concat"),
            Self::Part { .. } => lacks!("full", "Part"),
            Self::Pad { .. } => lacks!("full", "Pad"),
            Self::Transpose { .. } => lacks!("full", "Transpose"),
        }
    }
}

/// True if the name is one of those in `FAIRTIER_WITHOUT`.
const fn is_named(name: &str) -> bool {
    assert!(is_one_of(name.as_bytes(), &NAMES), "the name is missing in NAMES");
    let mut start = 0;
    while start < WITHOUT.len() {
        let word = word(start);
        if same(word, name.as_bytes()) {
            return true;
        }
        start += word.len() + 1;
    }
    false
}

const fn all_known() -> bool {
    let mut start = 0;
    while start < WITHOUT.len() {
        let word = word(start);
        if !is_one_of(word, &NAMES) {
            return false;
        }
        start += word.len() + 1;
    }
    true
}

/// The name that begins at `start`, up to a comma.
const fn word(start: usize) -> &'static [u8] {
    let mut end = start;
    while end < WITHOUT.len() && WITHOUT[end] != b',' {
        end += 1;
    }
    WITHOUT.split_at(end).0.split_at(start).1
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

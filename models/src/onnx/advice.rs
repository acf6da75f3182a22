//! The nearest change that makes a refused model work: one table, by operation.

use super::ImportError;

/// An operation as [`ImportError`] names it, a part of the problem (empty for any), and what to do. The first match counts.
const ADVICE: &[(&str, &str, &str)] = &[
    ("MatMul", "not a constant", ATTENTION),
    (
        "MatMul",
        "another order",
        "multiply the last axis only; for attention or products over steps, use nn.GRU or nn.Conv1d",
    ),
    ("Attention", "", ATTENTION),
    ("MultiHeadAttention", "", ATTENTION),
    (
        "Softmax",
        "",
        "keep a softmax only as the last operation; where it is part of attention, use an nn.GRU instead",
    ),
    (
        "Einsum",
        "",
        "write the product as nn.Linear with fixed weights; products of two computed values are not supported",
    ),
    ("GRU", "runs", DIRECTION),
    ("LSTM", "runs", DIRECTION),
    ("RNN", "", "replace nn.RNN by nn.GRU"),
    ("LSTM", "", "use nn.LSTM with default arguments, or replace it by nn.GRU"),
    (
        "GRU",
        "",
        "use nn.GRU with default arguments and export with the batch as first axis (batch_first=True)",
    ),
    ("If", "", CONTROL),
    ("Loop", "", CONTROL),
    ("Scan", "", CONTROL),
    ("Where", "", MASK),
    ("Equal", "", MASK),
    ("Less", "", MASK),
    ("Greater", "", MASK),
    ("And", "", MASK),
    ("Not", "", MASK),
    (
        "ConvTranspose",
        "",
        "replace nn.ConvTranspose2d by nn.Conv2d or nn.Linear; layers that enlarge images are not supported",
    ),
    ("Resize", "", "leave the resizing out, and give the model images of one size"),
    ("Upsample", "", "leave the resizing out, and give the model images of one size"),
    ("Conv", "dilated", "use dilation=1 with a larger kernel or a stride"),
    ("Conv", "another order", CHANNELS_FIRST),
    ("MaxPool", "another order", CHANNELS_FIRST),
    ("AveragePool", "another order", CHANNELS_FIRST),
    ("MaxPool", "ceil_mode", "set ceil_mode=False"),
    ("AveragePool", "ceil_mode", "set ceil_mode=False"),
    ("BatchNormalization", "training mode", "call model.eval() before torch.onnx.export"),
    ("BatchNormalization", "another order", CHANNELS_FIRST),
    ("RMSNormalization", "", "replace nn.RMSNorm by nn.LayerNorm"),
    ("SimplifiedLayerNormalization", "", "replace nn.RMSNorm by nn.LayerNorm"),
    ("LpNormalization", "", "replace F.normalize by nn.LayerNorm"),
    ("LRN", "", "replace nn.LocalResponseNorm by nn.BatchNorm2d"),
    ("ReduceMax", "", REDUCE),
    ("ReduceMin", "", REDUCE),
    ("ReduceSum", "", REDUCE),
    ("ReduceL2", "", REDUCE),
    ("ReduceMean", "", REDUCE),
    (
        "Reshape",
        "computed",
        "export with fixed sizes, without dynamic_shapes or dynamic_axes other than the batch",
    ),
    ("Reshape", "", "use flatten(1), or a reshape that keeps the batch as first axis"),
    ("Flatten", "", "flatten from axis 1 on, so that samples stay apart"),
    ("Mul", "", GATE),
    ("Div", "", GATE),
    ("Sub", "", GATE),
    ("Add", "", "add constants as the bias of a layer, and other values only where their shapes are equal"),
    ("Pow", "", FEATURES),
    ("Sqrt", "", FEATURES),
    ("Exp", "", FEATURES),
    ("Log", "", FEATURES),
    ("Abs", "", FEATURES),
    ("Sin", "", FEATURES),
    ("Cos", "", FEATURES),
    ("STFT", "", FEATURES),
    ("TopK", "", AFTER),
    ("ArgMax", "", AFTER),
    ("NonMaxSuppression", "", AFTER),
    ("OneHot", "", "replace one-hot vectors and a dense layer by nn.Embedding"),
    ("GatherND", "", INDEX),
    ("GatherElements", "", INDEX),
    ("ScatterND", "", INDEX),
    ("ScatterElements", "", INDEX),
    ("Tile", "", INDEX),
    ("Expand", "", INDEX),
    (
        "Gather",
        "",
        "index with constants along one axis only, or look words up with nn.Embedding as the first layer",
    ),
    ("Slice", "follows a softmax", COLUMNS),
    ("Slice", "", "slice with constants along one axis, or take the last step of a sequence with [:, -1]"),
    ("Transpose", "", "keep the order of the axes; layers that need another one are not supported"),
    ("Cast", "", "leave the conversion out; a model computes with float32"),
    ("QuantizeLinear", "", QUANTIZED),
    ("DequantizeLinear", "", QUANTIZED),
    ("DynamicQuantizeLinear", "", QUANTIZED),
    ("ai.onnx.ml.LinearClassifier", "", LINEAR),
    ("ai.onnx.ml.LinearRegressor", "", LINEAR),
    ("ai.onnx.ml.SVMClassifier", "", NO_GRADIENT),
    ("ai.onnx.ml.SVMRegressor", "", NO_GRADIENT),
    ("ai.onnx.ml.TreeEnsembleClassifier", "", NO_GRADIENT),
    ("ai.onnx.ml.TreeEnsembleRegressor", "", NO_GRADIENT),
    ("ai.onnx.ml.TreeEnsemble", "", NO_GRADIENT),
    ("ai.onnx.ml.Normalizer", "", BEFORE),
    ("ai.onnx.ml.Imputer", "", BEFORE),
    ("ai.onnx.ml.OneHotEncoder", "", BEFORE),
    ("ai.onnx.ml.LabelEncoder", "", BEFORE),
    ("ai.onnx.ml.Binarizer", "", BEFORE),
];

const ATTENTION: &str =
    "replace nn.MultiheadAttention by nn.GRU or nn.Conv1d; products of two computed values are not supported";
const DIRECTION: &str = "set bidirectional=False (Keras: no Bidirectional, go_backwards=False)";
const CONTROL: &str =
    "leave out branches and loops over values of tensors, or export with dynamo=True, which unrolls them";
const MASK: &str = "leave masks and comparisons out; give the model samples of one length";
const CHANNELS_FIRST: &str = "export with the channels first (tf2onnx: --inputs-as-nchw)";
const REDUCE: &str = "use nn.AdaptiveAvgPool2d(1), or .mean() over all pixels or steps";
const GATE: &str =
    "compute with constants only; products and differences of two computed values are not supported";
const FEATURES: &str = "compute this feature before the model, and give the model the result";
const AFTER: &str = "export the network without its post-processing, so that it ends with logits";
const COLUMNS: &str = "export with options={\"zipmap\": False} instead of \"columns\"";
const BEFORE: &str = "apply this step to the data before the model, and export the network without it";
const INDEX: &str = "leave indexing and repetition of computed values out, or export with fixed sizes";
const QUANTIZED: &str = "export the float model, before it is quantised";
const LINEAR: &str =
    "replace it by MLPClassifier or MLPRegressor with hidden_layer_sizes=(), or use `mlp:INPUTS-OUTPUTS`";
const NO_GRADIENT: &str =
    "use MLPClassifier or MLPRegressor; trees and support vectors are not trained by gradients";
const FUNCTION: &str = "the exporter wrote a function of its own; export with dynamo=False, or with a newer version of the exporter";
const UNKNOWN: &str = "leave this operation out, or compute it before or after the model";

impl ImportError {
    /// The nearest change that would work, where one node is the reason.
    pub fn advice(&self) -> Option<&'static str> {
        let (op, problem) = match self {
            Self::Op { op, .. } => (op, ""),
            Self::Node { op, problem, .. } => (op, problem.as_str()),
            _ => return None,
        };
        let matches = |(name, part, _): &&(&str, &str, &str)| name == op && problem.contains(part);
        let found = ADVICE.iter().find(matches).map(|(.., advice)| *advice);
        let foreign = op.contains('.') && !op.starts_with("ai.onnx.ml.");
        Some(found.unwrap_or(if foreign { FUNCTION } else { UNKNOWN }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(op: &str, problem: &str) -> &'static str {
        let (node, op, inputs) = ("n".to_owned(), op.to_owned(), vec![]);
        let error = match problem {
            "" => ImportError::Op { node, op, inputs },
            _ => ImportError::Node { node, op, problem: problem.to_owned(), inputs },
        };
        error.advice().unwrap()
    }

    #[test]
    fn every_row_can_be_reached() {
        for (op, part, expected) in ADVICE {
            assert_eq!(advice(op, part), *expected, "{op}: a row before it matches, too");
            assert!(!expected.ends_with('.') && expected.len() > 15, "{expected}");
        }
    }

    #[test]
    fn advice_follows_the_problem() {
        assert_eq!(advice("GRU", "runs bidirectional; only forward is supported"), DIRECTION);
        assert_eq!(advice("MatMul", "multiplies by 'q', which is not a constant"), ATTENTION);
        assert_eq!(advice("pkg.onnxscript.torch_lib.aten_roll", ""), FUNCTION);
        assert_eq!(advice("Hardmax", ""), UNKNOWN);
        assert_eq!(ImportError::NoGraph.advice(), None);
    }
}

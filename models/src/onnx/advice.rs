//! The nearest change that makes a refused model work: one table, by operation.

use super::ImportError;

/// An operation as [`ImportError`] names it, a part of the problem (empty for any), and what to do. The first match counts.
const ADVICE: &[(&str, &str, &str)] = &[
    ("MatMul", "", ATTENTION),
    ("Attention", "", ATTENTION),
    ("MultiHeadAttention", "", ATTENTION),
    (
        "Softmax",
        "",
        "keep a softmax only as the last operation; where it is part of attention, use nn.GRU instead",
    ),
    ("Einsum", "", "write the product as nn.Linear; products of two computed matrices are not supported"),
    ("GRU", "direction", DIRECTION),
    ("LSTM", "direction", DIRECTION),
    ("RNN", "direction", DIRECTION),
    ("LSTM", "", RECURRENT),
    ("GRU", "", RECURRENT),
    ("RNN", "", RECURRENT),
    ("If", "", CONTROL),
    ("Loop", "", CONTROL),
    ("Scan", "", CONTROL),
    ("Less", "", MASK),
    ("LessOrEqual", "", MASK),
    ("Greater", "", MASK),
    ("GreaterOrEqual", "", MASK),
    ("IsNaN", "", BEFORE),
    ("Mod", "", SIZES),
    (
        "SequenceEmpty",
        "",
        "replace nn.EmbeddingBag by nn.Embedding and the mean over words, as self.embed(x).mean(1)",
    ),
    ("Equal", "", MASK),
    ("Where", "", MASK),
    ("And", "", MASK),
    ("Not", "", MASK),
    (
        "ConvTranspose",
        "",
        "replace nn.ConvTranspose2d by nn.Conv2d or nn.Linear; layers that enlarge images are not supported",
    ),
    ("Resize", "", RESIZE),
    ("Upsample", "", RESIZE),
    ("Conv", "dilated", "use dilation=1 with a larger kernel or a stride"),
    ("Conv", "channels first", CHANNELS_FIRST),
    ("MaxPool", "ceil_mode", CEIL),
    ("AveragePool", "ceil_mode", CEIL),
    ("BatchNormalization", "training mode", "call model.eval() before torch.onnx.export"),
    ("RMSNormalization", "", "replace nn.RMSNorm by nn.LayerNorm"),
    ("LpNormalization", "", "replace F.normalize by nn.LayerNorm"),
    ("LRN", "", "replace nn.LocalResponseNorm by nn.BatchNorm2d"),
    ("ReduceMax", "", REDUCE),
    ("ReduceMin", "", REDUCE),
    (
        "ReduceSum",
        "",
        "replace sums over pixels or steps by their mean; in scikit-learn, use MLPClassifier without OneVsRestClassifier",
    ),
    ("ReduceProd", "", REDUCE),
    (
        "ReduceL2",
        "",
        "replace F.normalize by nn.LayerNorm; end weight_norm with torch.nn.utils.parametrize.remove_parametrizations",
    ),
    ("ReduceMean", "", REDUCE),
    ("Reshape", "does not depend on samples", SIZES),
    ("Reshape", "computed", SIZES),
    (
        "Reshape",
        "dimensions",
        "replace nn.PixelUnshuffle by nn.Conv2d with a stride; shuffle channels with one view of 5 axes",
    ),
    (
        "Reshape",
        "",
        "keep the batch as first axis, as flatten(1) does; in Keras, end a sequence with its last step",
    ),
    ("Flatten", "", "flatten from axis 1 on, so that samples stay apart"),
    (
        "Concat",
        "batch",
        "join values along an axis after the batch; use recurrent layers of num_layers=1, one after another",
    ),
    ("Concat", "", "join values along one axis, with equal sizes of the others"),
    (
        "Add",
        "int32",
        "look words up by numbers from 0 on with PyTorch's nn.Embedding; Keras corrects negative ones before its own",
    ),
    ("Add", "", SHAPES),
    ("Sub", "", SHAPES),
    ("Mul", "by itself", FEATURES),
    ("Mul", "", SHAPES),
    ("Div", "", "divide by constants only"),
    ("Pow", "", "replace nn.RMSNorm by nn.LayerNorm; compute other powers before the model"),
    ("Max", "", "compare with one number, as nn.ReLU and torch.clamp do"),
    ("Min", "", "compare with one number, as torch.clamp does"),
    (
        "Sigmoid",
        "several labels",
        "train a model with a sigmoid at its end in PyTorch or Keras, or one model per label",
    ),
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
        "index with constants along one axis, or look words up with nn.Embedding as the first layer",
    ),
    ("Slice", "follows a softmax", "export with options={\"zipmap\": False} instead of \"columns\""),
    ("Slice", "steps of", "replace x[::2] by nn.AvgPool1d(2), or by a stride of the layer before"),
    ("Slice", "", SIZES),
    ("Split", "", SIZES),
    ("Pad", "", "pad with zeros and constant sizes, or with the padding of the layer"),
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
    (
        "ArrayFeatureExtractor",
        "",
        "choose the columns in the data, or list fewer separate ones, and export the pipeline again",
    ),
    ("ai.onnx.ml.Normalizer", "", BEFORE),
    ("ai.onnx.ml.Imputer", "", BEFORE),
    ("ai.onnx.ml.OneHotEncoder", "", BEFORE),
    ("ai.onnx.ml.LabelEncoder", "", BEFORE),
    ("ai.onnx.ml.Binarizer", "", BEFORE),
];

const ATTENTION: &str = "replace nn.MultiheadAttention by nn.GRU or nn.Conv1d; products of two computed matrices are not supported";
const DIRECTION: &str =
    "set bidirectional=False, with more units if needed (Keras: no Bidirectional, no go_backwards)";
const RECURRENT: &str =
    "use the layer with default arguments, batch_first=True and num_layers=1, or replace it by nn.GRU";
const CONTROL: &str = "leave out branches and loops that depend on values; PyTorch's newer exporter (dynamo=True) unrolls loops";
const MASK: &str =
    "leave masks, comparisons and loops out; in Keras, use LSTM instead of GRU, which is written as a loop";
const RESIZE: &str = "leave the resizing out, and give the model images of one size";
const CHANNELS_FIRST: &str = "export with the channels first (tf2onnx: --inputs-as-nchw)";
const CEIL: &str = "set ceil_mode=False";
const REDUCE: &str = "use the mean or the maximum over all pixels or steps, as nn.AdaptiveAvgPool2d(1) does";
const SIZES: &str = "use constant sizes, or PyTorch's newer exporter (dynamo=True), which computes them";
const SHAPES: &str = "compute with constants, or with values of equal shape";
const FEATURES: &str = "compute this feature before the model, and give the model the result";
const AFTER: &str = "export the network without its post-processing, so that it ends with logits";
const BEFORE: &str = "apply this step to the data before the model, and export the network without it";
const INDEX: &str = "leave indexing and repetition of computed values out, or export with fixed sizes";
const QUANTIZED: &str = "export the float model, before it is quantised";
const LINEAR: &str =
    "replace it by MLPClassifier or MLPRegressor, or use a model of layers such as `mlp:64-10`";
const NO_GRADIENT: &str =
    "use MLPClassifier or MLPRegressor; trees and support vectors are not trained by gradients";
const FUNCTION: &str = "the exporter wrote a function of its own; export with dynamo=False, or with a newer version of the exporter";
const ONE_INPUT: &str = "give the model one input, and split it inside";
const UNKNOWN: &str = "leave this operation out, or compute it before or after the model";

impl ImportError {
    /// The nearest change that would work.
    pub fn advice(&self) -> Option<&'static str> {
        let (op, problem) = match self {
            Self::Op { op, .. } => (op, ""),
            Self::Node { op, problem, .. } => (op, problem.as_str()),
            Self::Inputs(..) => return Some(ONE_INPUT),
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
        assert_eq!(advice("GRU", "runs in both directions"), DIRECTION);
        assert_eq!(advice("MatMul", "multiplies by 'q', which is not a constant"), ATTENTION);
        assert_eq!(advice("pkg.onnxscript.torch_lib.aten_roll", ""), FUNCTION);
        assert_eq!(advice("Hardmax", ""), UNKNOWN);
        assert_eq!(ImportError::NoGraph.advice(), None);
        assert_eq!(ImportError::Inputs(2, "a, b".to_owned()).advice(), Some(ONE_INPUT));
    }
}

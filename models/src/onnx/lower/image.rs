//! Convolutions and pooling.

use common::plan::PoolKind;

use super::{Importer, bias::BiasAxis, integer, integers, problem, text};
use crate::{
    graph::{DimPart, Extent, FileLayout, Kernel, Param},
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        view::{SymbolicSize, TensorView, ViewAxis},
    },
};

impl<'a> Importer<'a> {
    pub(super) fn conv(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let groups = integer(node, "group").unwrap_or(1);
        let mut view = self.input(node, 0)?;
        let channels_last = groups == 1 && self.has_channels_last(&view);
        if !channels_last {
            view = self.image(node)?;
        }
        let sizes = self.sample_sizes(&view);
        let (name, weights) = self.weight(node, 1)?;
        let [outputs, taps, kernel @ ..] = &weights.dims[..] else {
            return Err(problem(node, format!("has a kernel of shape {:?}", weights.dims)));
        };
        let inputs = usize::try_from(groups).ok().and_then(|groups| groups.checked_mul(*taps));
        if kernel.len() + 1 != sizes.len() || inputs.as_ref() != sizes.first() {
            let text = format!("a kernel of shape {:?} does not fit an input of {sizes:?}", weights.dims);
            return Err(problem(node, text));
        }
        let mut window = window(node, kernel, &sizes[1..])?;
        let mut layout = FileLayout::default();
        if channels_last {
            (view, layout) = self.merge_channels(node, &view, &mut window)?;
        }
        let outputs = u32::try_from(*outputs).unwrap_or(u32::MAX);
        self.weights.insert(name.clone(), weights.data);
        let bias = match node.input.get(2).filter(|name| !name.is_empty()) {
            Some(_) => {
                let (name, bias) = self.weight(node, 2)?;
                if bias.dims != [outputs as usize] {
                    return Err(problem(
                        node,
                        format!("the bias has shape {:?}; expected [{outputs}]", bias.dims),
                    ));
                }
                self.weights.insert(name.clone(), bias.data);
                Some(Param::plain(name))
            }
            None => self.late_bias(node, outputs as usize, BiasAxis::First)?,
        };
        let (title, weight, groups) = (title(node), Param::in_layout(name, layout), groups as u32);
        let value = self.builder.conv(&title, view.value, outputs, groups, window, weight, bias)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    /// True for `[N, channels, ...]` of a value that has its channels last in memory, none of them cut.
    fn has_channels_last(&self, view: &TensorView) -> bool {
        let dims = &self.builder.shape(view.value).dims;
        let last = dims.len().wrapping_sub(1);
        let [ViewAxis::Batch, ViewAxis::Dim(channels), pixels @ ..] = &view.axes[..] else { return false };
        let order = pixels.iter().filter(|axis| **axis != ViewAxis::One);
        let in_order = order.cloned().eq((0..last).map(ViewAxis::Dim));
        *channels == last
            && last > 0
            && pixels.last() != Some(&ViewAxis::One)
            && in_order
            && dims.iter().all(|dim| dim.axis.is_none())
    }

    /// Sizes of all axes but the batch, in the order of the file.
    fn sample_sizes(&self, view: &TensorView) -> Vec<usize> {
        let size = |axis: &ViewAxis| match self.size(view, axis) {
            SymbolicSize::Fixed(size) => usize::try_from(size).ok(),
            SymbolicSize::Batch => None,
        };
        view.axes.iter().filter_map(size).collect()
    }

    /// An image with its channels last is one channel whose rows have all channels of each pixel in turn. A kernel on it is
    /// that much wider and moves that much further, so nothing has to be transposed.
    fn merge_channels(
        &mut self,
        node: &NodeProto,
        view: &TensorView,
        window: &mut Kernel,
    ) -> Result<(TensorView, FileLayout), ImportError> {
        let sizes = self.sample_sizes(view);
        let channels = sizes.first().and_then(|&size| u16::try_from(size).ok());
        let wide = |size: u16| channels.and_then(|channels| size.checked_mul(channels));
        let widened =
            (wide(window.size[1]), wide(window.stride[1]), wide(window.pad[1]), wide(window.pad[3]));
        let (Some(channels), (Some(size), Some(stride), Some(left), Some(right))) = (channels, widened)
        else {
            return Err(problem(node, "has too many channels; export with the channels first"));
        };
        (window.size[1], window.stride[1], window.pad[1], window.pad[3]) = (size, stride, left, right);
        let pixels = sizes.iter().skip(1).map(|&size| size as u32);
        let mut target: Vec<u32> = std::iter::once(1).chain(pixels).collect();
        if let Some(width) = target.last_mut() {
            *width = width.saturating_mul(channels.into());
        }
        let rank = target.len();
        let value = self.builder.reshape(&format!("{}.input", title(node)), view.value, &target)?;
        // Ours is [outputs][1][..][width x channels], the file's [outputs][channels][..][width].
        let last = |extent| vec![DimPart { dim: rank as u8, extent }];
        let rows = (2..rank as u8).map(|dim| vec![DimPart::whole(dim)]);
        let head = [vec![DimPart::whole(0)], last(Extent::Within(channels))];
        let layout = head.into_iter().chain(rows).chain([last(Extent::Runs(channels))]).collect();
        Ok((TensorView::plain(value, rank), FileLayout(layout)))
    }

    pub(super) fn pool(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.image(node)?;
        let sizes = self.builder.sizes(view.value);
        let kernel: Option<Vec<usize>> =
            integers(node, "kernel_shape").and_then(|k| k.iter().map(|&k| usize::try_from(k).ok()).collect());
        let kernel = kernel.filter(|kernel| kernel.len() + 1 == sizes.len());
        let kernel = kernel.ok_or_else(|| problem(node, "needs one kernel size per axis of the image"))?;
        let window = window(node, &kernel, &sizes[1..])?;
        let padded = window.pad != [0; 4];
        let kind = match (node.op_type.as_str(), integer(node, "count_include_pad").unwrap_or(0)) {
            ("MaxPool", _) => PoolKind::Max,
            (_, 0) => PoolKind::Average,
            _ if padded => PoolKind::AveragePadded,
            _ => PoolKind::Average,
        };
        if integer(node, "ceil_mode").unwrap_or(0) != 0 && !exact(&window, &sizes[1..]) {
            return Err(problem(node, "ceil_mode = 1 would read past the image here; use 0"));
        }
        let value = self.builder.pool(&title(node), view.value, kind, window)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    pub(super) fn global_pool(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.image(node)?;
        let value = self.builder.global_pool(&title(node), view.value)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    /// The mean over all pixels, for any order of axes in the file.
    pub(super) fn reduce_mean(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        if let Some(view) = self.spelled_layer_norm(node)? {
            return Ok(view);
        }
        let view = self.input(node, 0)?;
        let axes = self.axes_operand(node)?;
        let rank = self.builder.shape(view.value).dims.len();
        let mut dims: Vec<usize> = Vec::new();
        for &axis in &axes {
            match view.axes.get(axis) {
                Some(ViewAxis::Dim(dim)) => dims.push(*dim),
                Some(ViewAxis::One) => {}
                _ => return Err(problem(node, "takes a mean over samples")),
            }
        }
        dims.sort_unstable();
        let pixels = rank > 1 && dims == (1..rank).collect::<Vec<_>>();
        if !pixels || rank > 3 {
            return Err(problem(node, "only the mean over all pixels of an image is supported"));
        }
        let value = self.builder.global_pool(&title(node), view.value)?;
        let keep = integer(node, "keepdims").unwrap_or(1) != 0;
        if keep {
            return Ok(self.named(node, TensorView { value, ..view }));
        }
        let value = self.builder.flatten(&format!("{}.flatten", title(node)), value);
        let left = view.axes.iter().enumerate().filter(|(place, _)| !axes.contains(place));
        let axes = left.map(|(_, axis)| axis.clone()).collect();
        Ok(self.named(node, TensorView { value, axes }))
    }

    /// `[N, channels, ...]` in the order of memory.
    fn image(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        self.plain(node, view).map_err(|error| match error {
            ImportError::Node { problem: text, .. } => {
                problem(node, format!("{text}; export with the channels first (tf2onnx: --inputs-as-nchw)"))
            }
            other => other,
        })
    }
}

/// Size, stride and padding of a kernel.
fn window(node: &NodeProto, kernel: &[usize], image: &[usize]) -> Result<Kernel, ImportError> {
    let wrong = || problem(node, "has attributes that do not fit its kernel");
    let count = kernel.len();
    let list = |name: &str, len: usize, default: i64| -> Result<Vec<u16>, ImportError> {
        let numbers = integers(node, name).map_or_else(|| vec![default; len], <[i64]>::to_vec);
        let numbers: Option<Vec<u16>> =
            numbers.into_iter().map(|number| u16::try_from(number).ok()).collect();
        numbers.filter(|numbers| numbers.len() == len).ok_or_else(wrong)
    };
    if !matches!(count, 1 | 2) || image.len() != count {
        return Err(problem(node, "supports only images and signals"));
    }
    if list("dilations", count, 1)?.iter().any(|&step| step != 1) {
        return Err(problem(node, "has a dilated kernel, which is not supported"));
    }
    let size: Option<Vec<u16>> = kernel.iter().map(|&size| u16::try_from(size).ok()).collect();
    let size = size.ok_or_else(wrong)?;
    let stride = list("strides", count, 1)?;
    let pads = match text(node, "auto_pad").as_deref() {
        None | Some("" | "NOTSET") => list("pads", 2 * count, 0)?,
        Some("VALID") => vec![0; 2 * count],
        Some(same @ ("SAME_UPPER" | "SAME_LOWER")) => {
            let mut pads = vec![0; 2 * count];
            for axis in 0..count {
                let step = usize::from(stride[axis]).max(1);
                let needed = (image[axis].div_ceil(step).saturating_sub(1) * step + kernel[axis])
                    .saturating_sub(image[axis]);
                let (less, more) = (needed / 2, needed - needed / 2);
                let (before, after) = if same == "SAME_UPPER" { (less, more) } else { (more, less) };
                pads[axis] = u16::try_from(before).map_err(|_| wrong())?;
                pads[axis + count] = u16::try_from(after).map_err(|_| wrong())?;
            }
            pads
        }
        Some(other) => return Err(problem(node, format!("auto_pad {other} is not supported"))),
    };
    Ok(match (&size[..], &stride[..], &pads[..]) {
        (&[width], &[right], &[left, end]) => {
            Kernel { size: [1, width], stride: [1, right], pad: [0, left, 0, end] }
        }
        (&[height, width], &[down, right], &[top, left, bottom, end]) => {
            Kernel { size: [height, width], stride: [down, right], pad: [top, left, bottom, end] }
        }
        _ => return Err(wrong()),
    })
}

/// True if the last position of the kernel ends at the end of the padded image.
fn exact(window: &Kernel, image: &[usize]) -> bool {
    let skip = 2 - image.len();
    image.iter().enumerate().all(|(axis, &size)| {
        let axis = axis + skip;
        let padded = size + usize::from(window.pad[axis]) + usize::from(window.pad[axis + 2]);
        let room = padded.checked_sub(window.size[axis].into());
        room.is_some_and(|room| room.is_multiple_of(usize::from(window.stride[axis]).max(1)))
    })
}

//! Convolutions and pooling.

use common::plan::PoolKind;

use super::{Importer, bias::BiasAxis, integer, integers, problem, text};
use crate::{
    graph::{Kernel, Param},
    onnx::{
        import::{ImportError, title},
        proto::NodeProto,
        view::{TensorView, ViewAxis},
    },
};

impl<'a> Importer<'a> {
    pub(super) fn conv(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let groups = integer(node, "group").unwrap_or(1);
        let view = self.image(node)?;
        let sizes = self.builder.sizes(view.value);
        let (name, weights) = self.weight(node, 1)?;
        let [outputs, taps, kernel @ ..] = &weights.dims[..] else {
            return Err(problem(node, format!("has a kernel of shape {:?}", weights.dims)));
        };
        let inputs = usize::try_from(groups).ok().and_then(|groups| groups.checked_mul(*taps));
        if kernel.len() + 1 != sizes.len() || inputs.as_ref() != sizes.first() {
            let text = format!("a kernel of shape {:?} does not fit an input of {sizes:?}", weights.dims);
            return Err(problem(node, text));
        }
        let window = self.window(node, kernel, &sizes[1..])?;
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
        let (title, weight, groups) = (title(node), Param::plain(name), groups as u32);
        let value = self.builder.conv(&title, view.value, outputs, groups, window, weight, bias)?;
        Ok(self.named(node, TensorView { value, ..view }))
    }

    pub(super) fn pool(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.image(node)?;
        let sizes = self.builder.sizes(view.value);
        let kernel: Option<Vec<usize>> =
            integers(node, "kernel_shape").and_then(|k| k.iter().map(|&k| usize::try_from(k).ok()).collect());
        let kernel = kernel.filter(|kernel| kernel.len() + 1 == sizes.len());
        let kernel = kernel.ok_or_else(|| problem(node, "needs one kernel size per axis of the image"))?;
        let window = self.window(node, &kernel, &sizes[1..])?;
        let merged = self.padded.contains_key(node.input.first().map_or("", String::as_str));
        let padded = window.pad != [0; 4];
        let kind = match (node.op_type.as_str(), integer(node, "count_include_pad").unwrap_or(0)) {
            ("MaxPool", _) => PoolKind::Max,
            (_, 0) if !merged => PoolKind::Average,
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
        let value = match node.op_type.as_str() {
            "GlobalMaxPool" => self.builder.global_max_pool(&title(node), view.value)?,
            _ => self.builder.global_pool(&title(node), view.value)?,
        };
        Ok(self.named(node, TensorView { value, ..view }))
    }

    /// The mean or maximum over all pixels or all steps, for any order of axes in the file.
    pub(super) fn reduce(&mut self, node: &'a NodeProto, kind: PoolKind) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        let axes = self.axes_operand(node)?;
        let rank = self.builder.shape(view.value).dims.len();
        let mut dims: Vec<usize> = Vec::new();
        for &axis in &axes {
            match view.axes.get(axis) {
                Some(ViewAxis::Dim(dim)) => dims.push(*dim),
                Some(ViewAxis::One) => {}
                _ => return Err(problem(node, "reduces over samples")),
            }
        }
        dims.sort_unstable();
        let keep = integer(node, "keepdims").unwrap_or(1) != 0;
        let name = title(node);
        if matches!(rank, 2 | 3) && dims == (1..rank).collect::<Vec<_>>() {
            let value = match kind {
                PoolKind::Max => self.builder.global_max_pool(&name, view.value)?,
                PoolKind::Average | PoolKind::AveragePadded => self.builder.global_pool(&name, view.value)?,
            };
            if keep {
                return Ok(self.named(node, TensorView { value, ..view }));
            }
            let value = self.builder.flatten(&format!("{name}.flatten"), value);
            let axes = without(&view, &axes);
            return Ok(self.named(node, TensorView { value, axes }));
        }
        if rank == 2 && dims == [0] {
            let value = self.builder.step_pool(&name, view.value, kind)?;
            let axes = view.axes.iter().map(|axis| match axis {
                ViewAxis::Dim(0) => ViewAxis::One,
                ViewAxis::Dim(_) => ViewAxis::Dim(0),
                other => other.clone(),
            });
            let kept = TensorView { value, axes: axes.collect() };
            let places: Vec<usize> = if keep { vec![] } else { self.axes_operand(node)? };
            return Ok(self.named(node, TensorView { value, axes: without(&kept, &places) }));
        }
        Err(problem(node, "reduces something other than all pixels of an image or all steps of a sequence"))
    }

    /// `[N, channels, ...]` in the order of memory.
    fn image(&mut self, node: &'a NodeProto) -> Result<TensorView, ImportError> {
        let view = self.input(node, 0)?;
        self.plain(node, view)
    }

    /// The window of a node, with the zeros that a Pad before it adds.
    fn window(&self, node: &NodeProto, kernel: &[usize], image: &[usize]) -> Result<Kernel, ImportError> {
        let mut window = window(node, kernel, image)?;
        let padded = self.padded.get(node.input.first().map_or("", String::as_str));
        for (pad, more) in window.pad.iter_mut().zip(padded.into_iter().flatten()) {
            *pad = pad.saturating_add(*more);
        }
        Ok(window)
    }
}

/// The axes of a view that are not in these places.
fn without(view: &TensorView, places: &[usize]) -> Vec<ViewAxis> {
    let left = view.axes.iter().enumerate().filter(|(place, _)| !places.contains(place));
    left.map(|(_, axis)| axis.clone()).collect()
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

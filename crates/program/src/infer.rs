//! What shape and scale each operation gives, as a function of its operands.

use covey_ring::Ring;

use crate::{Kind, Op, Value, Visibility, Window};

/// One dimension of a full shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dim {
    /// The batch, chosen at run time; only ever first.
    Batch,
    Size(usize),
}

/// Shape and scale of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub batched: bool,
    pub shape: Vec<usize>,
    pub scale: u32,
}

/// Form of the result of `op` on `inputs`, or what is wrong with them. `output` is the declared result: reshape takes
/// its shape from it and MulShift its scale.
pub(crate) fn infer(op: &Op, inputs: &[&Value], output: &Value, ring: Ring) -> Result<Form, String> {
    match op {
        Op::Conv2d { window, groups } => conv(inputs, window, *groups),
        Op::Dense => dense(inputs),
        Op::Matmul => matmul(inputs),
        Op::Truncate { bits, .. } => {
            let [x] = operands(inputs)?;
            shift_in_ring(*bits, ring)?;
            let scale = x.scale.checked_sub(*bits).ok_or_else(|| {
                format!("drops {bits} bits but '{}' has scale {}: truncate by at most its scale", x.name, x.scale)
            })?;
            Ok(Form { scale, ..form(x) })
        }
        Op::MulShift { multipliers, shift, .. } => mul_shift(inputs, multipliers, *shift, output, ring),
        Op::DivExact { divisor } => {
            let [x] = operands(inputs)?;
            if *divisor == 0 || *divisor > ring.signed_range().1 as u64 {
                return Err(format!("divisor {divisor} is not between 1 and the largest integer of {ring}"));
            }
            Ok(form(x))
        }
        Op::Add | Op::Sub => {
            let [x, y] = operands(inputs)?;
            equal_scales(x, y)?;
            broadcast(x, y, x.scale)
        }
        Op::Mul => {
            let [x, y] = operands(inputs)?;
            broadcast(x, y, x.scale + y.scale)
        }
        Op::ShiftLeft { bits } => {
            let [x] = operands(inputs)?;
            shift_in_ring(*bits, ring)?;
            Ok(Form { scale: x.scale + bits, ..form(x) })
        }
        Op::Relu => operands(inputs).map(|[x]| form(x)),
        Op::Clip { low, high } => clip(inputs, *low, *high, ring),
        Op::MaxPool { window } | Op::SumPool { window } => pool(inputs, window),
        Op::Reshape => reshape(inputs, output),
        Op::Transpose { permutation } => transpose(inputs, permutation),
        Op::Concat { axis } => concat(inputs, *axis),
        Op::Pad { before, after, .. } => pad(inputs, before, after),
        Op::ArgMax { axis, keep_dims, .. } => arg_max(inputs, *axis, *keep_dims),
        Op::Gather { axes } => gather(inputs, axes),
        Op::LessThanZero => operands(inputs).map(|[x]| Form { scale: 0, ..form(x) }),
    }
}

fn operands<'a, const N: usize>(inputs: &[&'a Value]) -> Result<[&'a Value; N], String> {
    inputs.try_into().map_err(|_| format!("takes {N} operands, not {}", inputs.len()))
}

/// x, weight and the optional bias of a linear layer.
fn linear<'a>(inputs: &[&'a Value]) -> Result<(&'a Value, &'a Value, Option<&'a Value>), String> {
    let (x, weight, bias) = match *inputs {
        [x, weight] => (x, weight, None),
        [x, weight, bias] => (x, weight, Some(bias)),
        _ => return Err(format!("takes an input, a weight and optionally a bias, not {} operands", inputs.len())),
    };
    for operand in [Some(weight), bias].into_iter().flatten() {
        if !operand.is_weight() {
            return Err(format!(
                "'{}' is computed at run time where a parameter, state or constant is due: use Matmul, Mul or Add",
                operand.name
            ));
        }
    }
    Ok((x, weight, bias))
}

fn check_bias(bias: Option<&Value>, size: usize, scale: u32) -> Result<(), String> {
    let Some(bias) = bias else { return Ok(()) };
    if bias.shape != [size] {
        return Err(format!("bias '{}' has shape {:?} where [{size}] is due", bias.name, bias.shape));
    }
    if bias.scale != scale {
        return Err(format!("bias '{}' has scale {} where the product's {scale} is due", bias.name, bias.scale));
    }
    Ok(())
}

fn conv(inputs: &[&Value], window: &Window, groups: usize) -> Result<Form, String> {
    let (x, weight, bias) = linear(inputs)?;
    let (mut dims, [channels, height, width]) = image(x)?;
    let [out, depth, kernel_height, kernel_width] = weight.shape[..] else {
        return Err(format!(
            "weight '{}' has shape {:?} where [O, C/groups, KH, KW] is due",
            weight.name, weight.shape
        ));
    };
    if window.kernel != [kernel_height, kernel_width] {
        return Err(format!(
            "weight '{}' has shape {:?} but the kernel {:?}",
            weight.name, weight.shape, window.kernel
        ));
    }
    if groups == 0 || channels % groups != 0 || out % groups != 0 {
        return Err(format!("{groups} groups do not divide {channels} input and {out} output channels"));
    }
    if depth != channels / groups {
        return Err(format!(
            "weight '{}' reads {depth} channels where '{}' has {channels} in {groups} groups",
            weight.name, x.name
        ));
    }
    let scale = x.scale + weight.scale;
    check_bias(bias, out, scale)?;
    let [height, width] = slide(x, window, [height, width])?;
    dims.extend([out, height, width].map(Dim::Size));
    to_form(dims, scale)
}

fn dense(inputs: &[&Value]) -> Result<Form, String> {
    let (x, weight, bias) = linear(inputs)?;
    let [rows, columns] = weight.shape[..] else {
        return Err(format!("weight '{}' has shape {:?} where [K, M] is due", weight.name, weight.shape));
    };
    let mut dims = full(x);
    if dims.last() != Some(&Dim::Size(rows)) {
        return Err(format!(
            "'{}' of shape {} does not end in the {rows} rows of weight '{}'",
            x.name,
            describe(x),
            weight.name
        ));
    }
    let scale = x.scale + weight.scale;
    check_bias(bias, columns, scale)?;
    dims.pop();
    dims.push(Dim::Size(columns));
    to_form(dims, scale)
}

fn matmul(inputs: &[&Value]) -> Result<Form, String> {
    let [x, y] = operands(inputs)?;
    for operand in [x, y] {
        if operand.is_weight() || operand.visibility != Visibility::Secret {
            return Err(format!("'{}' comes with the model or is public: use Dense", operand.name));
        }
    }
    let mismatch = || {
        format!(
            "'{}' of shape {} and '{}' of shape {} do not multiply: [N,..,M,K] by [N,..,K,P] is due",
            x.name,
            describe(x),
            y.name,
            describe(y)
        )
    };
    let (mut left, right) = (full(x), full(y));
    if left.len() < 2 || left.len() != right.len() {
        return Err(mismatch());
    }
    let lead = left.len() - 2;
    let inner = left[lead + 1];
    let plain = [left[lead], inner, right[lead + 1]].iter().all(|&dim| dim != Dim::Batch);
    if !plain || left[..lead] != right[..lead] || inner != right[lead] {
        return Err(mismatch());
    }
    left[lead + 1] = right[lead + 1];
    to_form(left, x.scale + y.scale)
}

fn mul_shift(inputs: &[&Value], multipliers: &[i64], shift: u32, output: &Value, ring: Ring) -> Result<Form, String> {
    let [x] = operands(inputs)?;
    shift_in_ring(shift, ring)?;
    let plane = match full(x)[..] {
        [.., Dim::Size(height), Dim::Size(width)] => height.checked_mul(width),
        _ => None,
    };
    if multipliers.len() != 1 && (multipliers.is_empty() || Some(multipliers.len()) != plane) {
        return Err(format!(
            "holds {} multipliers where one is due, or one per element of the last two dimensions of '{}' {}",
            multipliers.len(),
            x.name,
            describe(x)
        ));
    }
    let (least, most) = ring.signed_range();
    if let Some(multiplier) = multipliers.iter().find(|m| !(least..=most).contains(m)) {
        return Err(format!("multiplies by {multiplier}, outside {ring}"));
    }
    // The product is no value of its own, so its fit in the ring is checked here. Several multipliers meet different
    // sums (a border's are smaller and its multipliers larger), which one bound cannot tell apart: their fit is the
    // compiler's to prove, as every value's bound is.
    if let [multiplier] = multipliers {
        let product = ((1u128 << x.bound.bits) - 1) * u128::from(multiplier.unsigned_abs());
        if product > most as u128 {
            return Err(format!(
                "'{}' is bounded by 2^{} and times {multiplier} leaves {ring}: compile with a larger ring or a smaller \
                 scale",
                x.name, x.bound.bits
            ));
        }
    }
    if output.scale > x.scale + shift {
        return Err(format!(
            "'{}' has scale {}, above the {} of '{}' plus the shift {shift}",
            output.name, output.scale, x.scale, x.name
        ));
    }
    Ok(Form { scale: output.scale, ..form(x) })
}

fn clip(inputs: &[&Value], low: Option<i64>, high: Option<i64>, ring: Ring) -> Result<Form, String> {
    let [x] = operands(inputs)?;
    let (least, most) = ring.signed_range();
    if let Some(end) = [low, high].into_iter().flatten().find(|end| !(least..=most).contains(end)) {
        return Err(format!("clips at {end}, outside {ring}"));
    }
    match (low, high) {
        (None, None) => Err("clips at neither end: leave the node out".into()),
        (Some(low), Some(high)) if low > high => Err(format!("clips from {low} to {high}, which is empty")),
        _ => Ok(form(x)),
    }
}

fn pool(inputs: &[&Value], window: &Window) -> Result<Form, String> {
    let [x] = operands(inputs)?;
    let (mut dims, [channels, height, width]) = image(x)?;
    let sizes = slide(x, window, [height, width])?;
    let span = window.span();
    for axis in [0, 1] {
        let (before, after) = (window.pads[axis], window.pads[axis + 2]);
        if before >= span[axis] || after >= span[axis] {
            return Err(format!("pads {:?} reach past the window, which spans {span:?}", window.pads));
        }
        // Every window must hold one real element: a maximum over nothing has no value. Windows that start inside the
        // image do; one that starts `missing` rows before it has its first tap inside at missing mod dilation.
        let dilation = window.dilations[axis];
        let starts = (1..=before).rev().step_by(window.strides[axis]);
        for missing in starts {
            if (dilation - missing % dilation) % dilation >= [height, width][axis] {
                return Err(format!("a window lies wholly in the padding of '{}' {}", x.name, describe(x)));
            }
        }
    }
    dims.extend([channels, sizes[0], sizes[1]].map(Dim::Size));
    to_form(dims, x.scale)
}

fn reshape(inputs: &[&Value], output: &Value) -> Result<Form, String> {
    let [x] = operands(inputs)?;
    if x.batched != output.batched || x.elements() != output.elements() {
        return Err(format!(
            "'{}' of shape {} cannot become '{}' of shape {}: the batch and the number of elements must stay",
            x.name,
            describe(x),
            output.name,
            describe(output)
        ));
    }
    Ok(Form { scale: x.scale, ..form(output) })
}

fn transpose(inputs: &[&Value], permutation: &[usize]) -> Result<Form, String> {
    let [x] = operands(inputs)?;
    let dims = full(x);
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..dims.len()) {
        return Err(format!("{permutation:?} does not permute the {} dimensions of '{}'", dims.len(), x.name));
    }
    to_form(permutation.iter().map(|&from| dims[from]).collect(), x.scale)
}

fn concat(inputs: &[&Value], axis: usize) -> Result<Form, String> {
    let [first, rest @ ..] = inputs else { return Err("takes at least one operand".into()) };
    let mut dims = full(first);
    let Some(&Dim::Size(mut total)) = dims.get(axis) else {
        return Err(bad_axis(axis, first));
    };
    for other in rest {
        equal_scales(first, other)?;
        let mut theirs = full(other);
        let Some(&Dim::Size(size)) = theirs.get(axis) else { return Err(bad_axis(axis, other)) };
        theirs[axis] = dims[axis];
        if theirs != dims {
            return Err(format!(
                "'{}' of shape {} and '{}' of shape {} differ outside axis {axis}",
                first.name,
                describe(first),
                other.name,
                describe(other)
            ));
        }
        total += size;
    }
    dims[axis] = Dim::Size(total);
    to_form(dims, first.scale)
}

fn pad(inputs: &[&Value], before: &[usize], after: &[usize]) -> Result<Form, String> {
    let [x] = operands(inputs)?;
    let mut dims = full(x);
    if before.len() != dims.len() || after.len() != dims.len() {
        return Err(format!(
            "pads {} dimensions before and {} after where '{}' has {}",
            before.len(),
            after.len(),
            x.name,
            dims.len()
        ));
    }
    for (dim, (before, after)) in dims.iter_mut().zip(before.iter().zip(after)) {
        match dim {
            Dim::Size(size) => *size += before + after,
            Dim::Batch if *before == 0 && *after == 0 => {}
            Dim::Batch => return Err(format!("pads the batch dimension of '{}', which must stay as it is", x.name)),
        }
    }
    to_form(dims, x.scale)
}

fn arg_max(inputs: &[&Value], axis: usize, keep_dims: bool) -> Result<Form, String> {
    let [x] = operands(inputs)?;
    let mut dims = full(x);
    match dims.get(axis) {
        Some(Dim::Size(_)) if keep_dims => dims[axis] = Dim::Size(1),
        Some(Dim::Size(_)) => _ = dims.remove(axis),
        _ => return Err(bad_axis(axis, x)),
    }
    to_form(dims, 0)
}

fn gather(inputs: &[&Value], axes: &[Vec<Option<u32>>]) -> Result<Form, String> {
    let [x] = operands(inputs)?;
    let mut furthest = 0u64;
    for (axis, offsets) in axes.iter().enumerate() {
        if offsets.is_empty() {
            return Err(format!("takes no elements along dimension {axis} of the result"));
        }
        furthest += offsets.iter().flatten().copied().max().map_or(0, u64::from);
    }
    if furthest >= x.elements() as u64 {
        return Err(format!(
            "takes the element at offset {furthest} where '{}' has {} in a sample",
            x.name,
            x.elements()
        ));
    }
    Ok(Form { shape: axes.iter().map(Vec::len).collect(), ..form(x) })
}

/// NumPy's rule: shapes align at their last dimension, and a size of 1 stretches.
fn broadcast(x: &Value, y: &Value, scale: u32) -> Result<Form, String> {
    let (left, right) = (full(x), full(y));
    let rank = left.len().max(right.len());
    let at = |dims: &[Dim], index: usize| match (index + dims.len()).checked_sub(rank) {
        Some(index) => dims[index],
        None => Dim::Size(1),
    };
    let dims = (0..rank).map(|index| match (at(&left, index), at(&right, index)) {
        (a, b) if a == b => Ok(a),
        (Dim::Size(1), other) | (other, Dim::Size(1)) => Ok(other),
        _ => Err(format!(
            "'{}' of shape {} and '{}' of shape {} do not broadcast",
            x.name,
            describe(x),
            y.name,
            describe(y)
        )),
    });
    to_form(dims.collect::<Result<_, _>>()?, scale)
}

fn equal_scales(x: &Value, y: &Value) -> Result<(), String> {
    if x.scale == y.scale {
        return Ok(());
    }
    Err(format!(
        "'{}' has scale {} and '{}' {}: shift one left or truncate the other first",
        x.name, x.scale, y.name, y.scale
    ))
}

fn shift_in_ring(bits: u32, ring: Ring) -> Result<(), String> {
    if bits == 0 || bits >= ring.bits() {
        return Err(format!("shifts by {bits} bits where 1 to {} are allowed in {ring}", ring.bits() - 1));
    }
    Ok(())
}

/// The leading dimensions (one at least), and channels, height and width of an image tensor.
fn image(x: &Value) -> Result<(Vec<Dim>, [usize; 3]), String> {
    match full(x)[..] {
        [ref lead @ .., Dim::Size(channels), Dim::Size(height), Dim::Size(width)] if !lead.is_empty() => {
            Ok((lead.to_vec(), [channels, height, width]))
        }
        _ => Err(format!("'{}' has shape {} where [N, .., C, H, W] is due", x.name, describe(x))),
    }
}

fn slide(x: &Value, window: &Window, size: [usize; 2]) -> Result<[usize; 2], String> {
    if window.kernel.iter().chain(&window.strides).chain(&window.dilations).any(|&number| number == 0) {
        return Err("its window has a kernel side, stride or dilation of 0".into());
    }
    window.output_size(size).ok_or_else(|| {
        format!(
            "the window spans {:?} and '{}' of shape {} is smaller even when padded",
            window.span(),
            x.name,
            describe(x)
        )
    })
}

fn bad_axis(axis: usize, x: &Value) -> String {
    format!("axis {axis} is the batch or past the end of '{}' of shape {}", x.name, describe(x))
}

fn form(x: &Value) -> Form {
    Form { batched: x.batched, shape: x.shape.clone(), scale: x.scale }
}

fn full(x: &Value) -> Vec<Dim> {
    let batch = x.batched.then_some(Dim::Batch);
    batch.into_iter().chain(x.shape.iter().map(|&size| Dim::Size(size))).collect()
}

fn to_form(dims: Vec<Dim>, scale: u32) -> Result<Form, String> {
    let batched = dims.first() == Some(&Dim::Batch);
    let sizes = dims.iter().skip(usize::from(batched)).map(|dim| match dim {
        Dim::Size(size) => Ok(*size),
        Dim::Batch => Err("moves the batch dimension, which must stay first".to_string()),
    });
    Ok(Form { batched, shape: sizes.collect::<Result<_, _>>()?, scale })
}

/// A full shape for messages: "[N, 3, 8, 8]".
pub(crate) fn describe(x: &Value) -> String {
    let batch = x.batched.then(|| "N".to_string());
    let dims: Vec<String> = batch.into_iter().chain(x.shape.iter().map(usize::to_string)).collect();
    format!("[{}]", dims.join(", "))
}

/// Largest `b` with every integer of |v| < 2^b in the ring: l - 1 for Z_2^l.
pub(crate) fn largest_bound(ring: Ring) -> u32 {
    (ring.signed_range().1 as u64 + 1).ilog2()
}

/// Whether a node may write a value of this kind.
pub(crate) fn may_be_written(kind: Kind) -> bool {
    matches!(kind, Kind::Intermediate | Kind::State)
}

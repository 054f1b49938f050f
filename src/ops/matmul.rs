//! Matrix products and their accumulating forms.

use smallvec::smallvec;

use super::reduce::unsupported;
use super::{Args, Out, Registry};
use crate::ensure;
use crate::error::Result;
use crate::ir::{DType, DotAttrs, Shape, V};

pub(super) fn register(r: &mut Registry) {
    r.op("aten::mm", |a| mm(a, None));
    r.op("aten::mm.dtype", |a| mm(a, a.opt_dtype(2)?));
    r.op("aten::bmm", |a| bmm(a, None));
    r.op("aten::bmm.dtype", |a| bmm(a, a.opt_dtype(2)?));
    r.op("aten::addmm", |a| addmm(a, None, 3)?.out());
    r.op("aten::addmm.dtype", |a| addmm(a, a.opt_dtype(3)?, 4)?.out());
    r.op("aten::baddbmm", |a| baddbmm(a, None, 3));
    r.op("aten::baddbmm.dtype", |a| baddbmm(a, a.opt_dtype(3)?, 4));
    r.op("aten::_addmm_activation", addmm_activation);
    r.op("aten::addbmm", addbmm);
    r.op("aten::addmv", addmv);
    r.op("aten::addr", addr);
    r.op("aten::mv", |a| {
        let (mat, vec) = (a.t(0)?, a.t(1)?);
        product(mat, vec, Contraction::mv("mv", mat, vec)?).convert(mat.dtype()).out()
    });
    r.op("aten::dot", |a| dot(a, false));
    r.op("aten::vdot", |a| dot(a, true));
    r.op("aten::_int_mm", int_mm);
}

/// Which dimensions of a product are batched and which are summed over.
struct Contraction {
    batch: Shape,
    lhs: Shape,
    rhs: Shape,
}

/// As in `2x3`.
fn by(sizes: &[i64]) -> String {
    sizes.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}

/// The element types that PyTorch multiplies matrices of.
fn check_dtypes(op: &str, l: DType, r: DType) -> Result<()> {
    ensure!(
        l == r,
        "{op}: expected m1 and m2 to have the same dtype, but got: {} != {}",
        l.scalar_type_name(),
        r.scalar_type_name()
    );
    match l {
        DType::Bool | DType::U16 | DType::U32 | DType::U64 | DType::F8E4M3FN | DType::F8E5M2 => {
            Err(unsupported(op, l))
        }
        _ => Ok(()),
    }
}

impl Contraction {
    fn mm(op: &str, l: V<'_>, r: V<'_>) -> Result<Contraction> {
        ensure!(l.rank() == 2, "{op}: mat1 must be a matrix, got {}-D tensor", l.rank());
        ensure!(r.rank() == 2, "{op}: mat2 must be a matrix, got {}-D tensor", r.rank());
        ensure!(
            l.size(1) == r.size(0),
            "{op}: mat1 and mat2 shapes cannot be multiplied ({} and {})",
            by(&l.sizes()),
            by(&r.sizes())
        );
        check_dtypes(op, l.dtype(), r.dtype())?;
        Ok(Contraction { batch: smallvec![], lhs: smallvec![1], rhs: smallvec![0] })
    }

    fn bmm(op: &str, l: V<'_>, r: V<'_>) -> Result<Contraction> {
        ensure!(l.rank() == 3, "{op}: batch1 must be a 3D tensor");
        ensure!(r.rank() == 3, "{op}: batch2 must be a 3D tensor");
        ensure!(
            l.size(0) == r.size(0) && l.size(2) == r.size(1),
            "{op}: Expected size for first two dimensions of batch2 tensor to be: [{}, {}] but \
             got: [{}, {}].",
            l.size(0),
            l.size(2),
            r.size(0),
            r.size(1)
        );
        check_dtypes(op, l.dtype(), r.dtype())?;
        Ok(Contraction { batch: smallvec![0], lhs: smallvec![2], rhs: smallvec![1] })
    }

    fn mv(op: &str, mat: V<'_>, vec: V<'_>) -> Result<Contraction> {
        ensure!(
            mat.rank() == 2 && vec.rank() == 1,
            "{op}: vector + matrix @ vector expected, got matrix of {} and vector of {} \
             dimensions",
            mat.rank(),
            vec.rank()
        );
        ensure!(
            mat.size(1) == vec.size(0),
            "size mismatch, got input ({}), mat ({}), vec ({})",
            mat.size(0),
            by(&mat.sizes()),
            vec.size(0)
        );
        check_dtypes(op, mat.dtype(), vec.dtype())?;
        Ok(Contraction { batch: smallvec![], lhs: smallvec![1], rhs: smallvec![0] })
    }
}

/// The product, in the type it is accumulated in.
fn product<'b>(l: V<'b>, r: V<'b>, c: Contraction) -> V<'b> {
    let out = l.dtype().opmath();
    l.dot(
        r,
        DotAttrs {
            lhs_batch: c.batch.clone(),
            rhs_batch: c.batch,
            lhs_contract: c.lhs,
            rhs_contract: c.rhs,
            out,
        },
    )
}

/// `out_dtype` of the mixed-precision overloads: f32 of half-width operands, or their own.
fn out_dtype(op: &str, own: DType, given: Option<DType>) -> Result<DType> {
    let out = given.unwrap_or(own);
    ensure!(
        out == own || (out == DType::F32 && own.opmath() == DType::F32),
        "{op}: out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs, but got \
         {out} for {own}"
    );
    Ok(out)
}

fn mm<'b>(a: &Args<'b>, dtype: Option<DType>) -> Out<'b> {
    let (l, r) = (a.t(0)?, a.t(1)?);
    let c = Contraction::mm("mm", l, r)?;
    product(l, r, c).convert(out_dtype("mm", l.dtype(), dtype)?).out()
}

fn bmm<'b>(a: &Args<'b>, dtype: Option<DType>) -> Out<'b> {
    let (l, r) = (a.t(0)?, a.t(1)?);
    let c = Contraction::bmm("bmm", l, r)?;
    product(l, r, c).convert(out_dtype("bmm", l.dtype(), dtype)?).out()
}

/// `beta · input + alpha · product`, in the product's type. `input` broadcasts; where beta is 0
/// it is not looked at, so its NaN doesn't spread.
fn accumulate<'b>(
    a: &Args<'b>,
    input: V<'b>,
    product: V<'b>,
    beta: usize,
    alpha: usize,
) -> Result<V<'b>> {
    let compute = product.dtype();
    let (beta, alpha) = (a.num(beta)?, a.num(alpha)?);
    let (own, target) = (input.sizes(), product.sizes());
    ensure!(
        own.len() <= target.len(),
        "expand: the number of sizes provided ({}) must be greater or equal to the number of \
         dimensions in the tensor ({})",
        target.len(),
        own.len()
    );
    let offset = target.len() - own.len();
    for (i, &n) in own.iter().enumerate() {
        ensure!(
            n == 1 || n == target[i + offset],
            "The expanded size of the tensor ({}) must match the existing size ({n}) at \
             non-singleton dimension {}.  Target sizes: {:?}.  Tensor sizes: {:?}",
            target[i + offset],
            i + offset,
            &target[..],
            &own[..]
        );
    }
    // The defaults are worth a graph of their own; all other values share one.
    let product = if alpha.value.to_f64() == 1.0 && alpha.value.imag() == 0.0 {
        a.pin(alpha);
        product
    } else {
        product * alpha.to(compute)
    };
    if beta.value.is_zero() {
        a.pin(beta);
        return Ok(product);
    }
    let input = input.convert(compute).broadcast_to(&target);
    if beta.value.to_f64() == 1.0 && beta.value.imag() == 0.0 {
        a.pin(beta);
        return Ok(input + product);
    }
    let beta = beta.to(compute);
    Ok(beta.eq(0i64).select(product, input * beta + product))
}

fn same_as_self(input: V<'_>, other: V<'_>) -> Result<()> {
    ensure!(
        input.dtype() == other.dtype(),
        "self and mat2 must have the same dtype, but got {} and {}",
        input.dtype().scalar_type_name(),
        other.dtype().scalar_type_name()
    );
    Ok(())
}

/// self + mat1 @ mat2; `beta` is where the two factors start in the schema.
fn addmm<'b>(a: &Args<'b>, dtype: Option<DType>, beta: usize) -> Result<V<'b>> {
    let (input, l, r) = (a.t(0)?, a.t(1)?, a.t(2)?);
    let c = Contraction::mm("addmm", l, r)?;
    let out = out_dtype("addmm", l.dtype(), dtype)?;
    if out == l.dtype() {
        same_as_self(input, r)?;
    }
    Ok(accumulate(a, input, product(l, r, c), beta, beta + 1)?.convert(out))
}

fn addmm_activation<'b>(a: &Args<'b>) -> Out<'b> {
    let y = addmm(a, None, 3)?;
    let x = y.convert(y.dtype().opmath());
    let z = if a.bool(5)? {
        x * 0.5 * ((x * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0)
    } else {
        x.max(0i64)
    };
    z.convert(y.dtype()).out()
}

fn baddbmm<'b>(a: &Args<'b>, dtype: Option<DType>, beta: usize) -> Out<'b> {
    let (input, l, r) = (a.t(0)?, a.t(1)?, a.t(2)?);
    let c = Contraction::bmm("baddbmm", l, r)?;
    let out = out_dtype("baddbmm", l.dtype(), dtype)?;
    if out == l.dtype() {
        same_as_self(input, r)?;
    }
    accumulate(a, input, product(l, r, c), beta, beta + 1)?.convert(out).out()
}

fn addbmm<'b>(a: &Args<'b>) -> Out<'b> {
    let (input, l, r) = (a.t(0)?, a.t(1)?, a.t(2)?);
    Contraction::bmm("addbmm", l, r)?;
    same_as_self(input, r)?;
    // The sum over the batch is one more contracted dimension.
    let c = Contraction { batch: smallvec![], lhs: smallvec![0, 2], rhs: smallvec![0, 1] };
    accumulate(a, input, product(l, r, c), 3, 4)?.convert(l.dtype()).out()
}

fn addmv<'b>(a: &Args<'b>) -> Out<'b> {
    let (input, mat, vec) = (a.t(0)?, a.t(1)?, a.t(2)?);
    let c = Contraction::mv("addmv", mat, vec)?;
    same_as_self(input, vec)?;
    accumulate(a, input, product(mat, vec, c), 3, 4)?.convert(mat.dtype()).out()
}

fn addr<'b>(a: &Args<'b>) -> Out<'b> {
    let (x, y) = (a.t(1)?, a.t(2)?);
    ensure!(
        x.rank() == 1 && y.rank() == 1,
        "addr: Expected 1-D argument vec1 and vec2, but got {}-D and {}-D",
        x.rank(),
        y.rank()
    );
    let dtype = a.result_type(&[0, 1, 2])?;
    if dtype.is_bool() {
        return Err(unsupported("addr", dtype));
    }
    let compute = dtype.opmath();
    let outer = x.convert(compute).unsqueeze(1) * y.convert(compute).unsqueeze(0);
    accumulate(a, a.t(0)?, outer, 3, 4)?.convert(dtype).out()
}

fn dot<'b>(a: &Args<'b>, conjugate: bool) -> Out<'b> {
    let (x, y) = (a.t(0)?, a.t(1)?);
    ensure!(
        x.rank() == 1 && y.rank() == 1,
        "1D tensors expected, but got {}D and {}D tensors",
        x.rank(),
        y.rank()
    );
    ensure!(
        x.dtype() == y.dtype(),
        "dot : expected both vectors to have same dtype, but found {} and {}",
        x.dtype().scalar_type_name(),
        y.dtype().scalar_type_name()
    );
    ensure!(
        x.size(0) == y.size(0),
        "inconsistent tensor size, expected tensor [{0}] and src [{1}] to have the same number of \
         elements, but got {0} and {1} elements respectively",
        x.size(0),
        y.size(0)
    );
    check_dtypes("dot", x.dtype(), y.dtype())?;
    let left = if conjugate { conj(x) } else { x };
    let c = Contraction { batch: smallvec![], lhs: smallvec![0], rhs: smallvec![0] };
    product(left, y, c).convert(x.dtype()).out()
}

/// The complex conjugate; a real value is its own.
pub(super) fn conj(x: V<'_>) -> V<'_> {
    if x.dtype().is_complex() { x.real().complex(-x.imag()) } else { x }
}

fn int_mm<'b>(a: &Args<'b>) -> Out<'b> {
    let (l, r) = (a.t(0)?, a.t(1)?);
    let c = Contraction::mm("_int_mm", l, r)?;
    ensure!(
        l.dtype() == DType::I8,
        "_int_mm: Expected self dtype to be of type int8 but got {}",
        l.dtype()
    );
    l.dot(
        r,
        DotAttrs {
            lhs_batch: Shape::new(),
            rhs_batch: Shape::new(),
            lhs_contract: c.lhs,
            rhs_contract: c.rhs,
            out: DType::I32,
        },
    )
    .out()
}

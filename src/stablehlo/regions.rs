//! The small functions inside reductions, scatters and sorts.

use std::fmt::Write;

use crate::ir::{DType, ReduceKind};

/// `(a, b) -> a ∘ b`
pub(super) fn monoid(out: &mut String, kind: ReduceKind, dtype: DType) {
    let op = match (kind, dtype) {
        (ReduceKind::Sum, DType::Bool) => "or",
        (ReduceKind::Prod, DType::Bool) => "and",
        (ReduceKind::Sum, _) => "add",
        (ReduceKind::Prod, _) => "multiply",
        (ReduceKind::Max, _) => "maximum",
        (ReduceKind::Min, _) => "minimum",
        (ReduceKind::And, _) => "and",
        (ReduceKind::Or, _) => "or",
    };
    let t = dtype.mlir();
    let _ = write!(
        out,
        "    ^bb0(%a: tensor<{t}>, %b: tensor<{t}>):\n      \
         %r = stablehlo.{op} %a, %b : tensor<{t}>\n      \
         stablehlo.return %r : tensor<{t}>\n"
    );
}

/// `(a, b) -> b`
pub(super) fn second(out: &mut String, dtype: DType) {
    let t = dtype.mlir();
    let _ = write!(
        out,
        "    ^bb0(%a: tensor<{t}>, %b: tensor<{t}>):\n      stablehlo.return %b : tensor<{t}>\n"
    );
}

/// `%{name}`: a comes before b, strictly; NaN is the largest value.
fn before(out: &mut String, name: &str, dtype: DType, a: &str, b: &str) {
    let t = dtype.mlir();
    let kind = if dtype.is_inexact() {
        "FLOAT"
    } else if dtype.is_unsigned() {
        "UNSIGNED"
    } else {
        "SIGNED"
    };
    let compare = |dir: &str, x: &str, y: &str| {
        format!("stablehlo.compare {dir}, %{x}, %{y}, {kind} : (tensor<{t}>, tensor<{t}>) -> tensor<i1>")
    };
    if !dtype.is_float() {
        let _ = writeln!(out, "      %{name} = {}", compare("LT", a, b));
        return;
    }
    let _ = writeln!(out, "      %{name}lt = {}", compare("LT", a, b));
    let _ = writeln!(out, "      %{name}number = {}", compare("EQ", a, a));
    let _ = writeln!(out, "      %{name}nan = {}", compare("NE", b, b));
    let _ = writeln!(
        out,
        "      %{name}last = stablehlo.and %{name}number, %{name}nan : tensor<i1>"
    );
    let _ = writeln!(out, "      %{name} = stablehlo.or %{name}lt, %{name}last : tensor<i1>");
}

/// The order of a sort by its first operand.
pub(super) fn comparator(out: &mut String, dtypes: &[DType], descending: bool) {
    out.push_str("    ^bb0(");
    for (i, d) in dtypes.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        let t = d.mlir();
        let _ = write!(out, "{comma}%a{i}: tensor<{t}>, %b{i}: tensor<{t}>");
    }
    out.push_str("):\n");
    let (first, second) = if descending { ("b0", "a0") } else { ("a0", "b0") };
    before(out, "r", dtypes[0], first, second);
    out.push_str("      stablehlo.return %r : tensor<i1>\n");
}

/// `(value, index) ∘ (value, index)`: the more extreme one, the first of equals, NaN before all.
pub(super) fn arg(out: &mut String, max: bool, dtype: DType) {
    let t = dtype.mlir();
    let _ = writeln!(
        out,
        "    ^bb0(%a: tensor<{t}>, %i: tensor<i64>, %b: tensor<{t}>, %j: tensor<i64>):"
    );
    let kind = if dtype.is_float() {
        "FLOAT"
    } else if dtype.is_unsigned() {
        "UNSIGNED"
    } else {
        "SIGNED"
    };
    let dir = if max { "GT" } else { "LT" };
    let compare = |dir: &str, x: &str, y: &str| {
        format!("stablehlo.compare {dir}, %{x}, %{y}, {kind} : (tensor<{t}>, tensor<{t}>) -> tensor<i1>")
    };
    let _ = writeln!(out, "      %beats = {}", compare(dir, "a", "b"));
    let _ = writeln!(out, "      %same = {}", compare("EQ", "a", "b"));
    let (wins, ties) = if dtype.is_float() {
        let _ = writeln!(out, "      %anan = {}", compare("NE", "a", "a"));
        let _ = writeln!(out, "      %bnan = {}", compare("NE", "b", "b"));
        let _ = writeln!(out, "      %bnum = stablehlo.not %bnan : tensor<i1>");
        let _ = writeln!(out, "      %only = stablehlo.and %anan, %bnum : tensor<i1>");
        let _ = writeln!(out, "      %both = stablehlo.and %anan, %bnan : tensor<i1>");
        let _ = writeln!(out, "      %wins = stablehlo.or %beats, %only : tensor<i1>");
        let _ = writeln!(out, "      %ties = stablehlo.or %same, %both : tensor<i1>");
        ("wins", "ties")
    } else {
        ("beats", "same")
    };
    let _ = writeln!(
        out,
        "      %earlier = stablehlo.compare LT, %i, %j, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>"
    );
    let _ = writeln!(out, "      %first = stablehlo.and %{ties}, %earlier : tensor<i1>");
    let _ = writeln!(out, "      %left = stablehlo.or %{wins}, %first : tensor<i1>");
    let _ = writeln!(
        out,
        "      %value = stablehlo.select %left, %a, %b : tensor<i1>, tensor<{t}>"
    );
    let _ = writeln!(
        out,
        "      %index = stablehlo.select %left, %i, %j : tensor<i1>, tensor<i64>"
    );
    let _ = writeln!(out, "      stablehlo.return %value, %index : tensor<{t}>, tensor<i64>");
}

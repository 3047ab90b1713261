//! Values that several products of a run multiply, where products open their operands: inputs of several layers, what a gradient shares
//! with the forward pass, factors that are broadcast. Each is opened once, before it is rearranged.

use covey_operators::Fusion;
use covey_program::{Program, ValueId, Visibility};

use crate::schedule::Step;

/// Notes with the first step that reads such a value that it is opened then.
pub(crate) fn open_once(program: &Program, steps: &mut [Step]) {
    // What each value is a rearrangement of, and how many elements of it products multiply.
    let mut origins: Vec<usize> = (0..program.values().len()).collect();
    let mut multiplied = vec![0; origins.len()];
    for step in steps.iter().flat_map(Step::members) {
        if step.op.rearranges() {
            origins[step.output.index()] = origins[step.inputs[0].index()];
        }
        for factor in factors(program, step) {
            let result = program.value(step.output);
            multiplied[origins[factor.index()]] += step.op.factor_elements(program.value(factor), result);
        }
    }
    for step in steps {
        let mut opens = Vec::new();
        for &id in step.members().flat_map(|step| &step.inputs) {
            let elements = std::mem::take(&mut multiplied[id.index()]);
            if elements > program.value(id).elements() {
                opens.push(id);
            }
        }
        step.opens = opens;
    }
}

/// The operands that a step opens: those of a product of secrets.
fn factors(program: &Program, step: &Step) -> Vec<ValueId> {
    let &[x, y, ..] = &step.inputs[..] else { return Vec::new() };
    let secret = [x, y].iter().all(|&id| program.value(id).visibility == Visibility::Secret);
    match step.op.fusion() {
        // A weight that is no value of the run was opened when it was prepared.
        Fusion::Linear if secret && program.value(y).is_weight() => vec![x],
        // A square opens its factor once, and a matrix each of its operands.
        Fusion::Product { elementwise: true } if secret && x == y => vec![x],
        Fusion::Linear | Fusion::Product { .. } if secret => vec![x, y],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use covey_program::{Op, ProgramBuilder, op};
    use covey_ring::Ring;

    use crate::schedule::{Fusions, Schedule};

    /// The names of what each step opens.
    fn opened(build: impl FnOnce(&mut ProgramBuilder)) -> Vec<(String, Vec<String>)> {
        let mut b = ProgramBuilder::new("factors", Ring::Pow2(32));
        build(&mut b);
        let program = b.build().unwrap();
        let schedule = Schedule::new(&program, Fusions::default());
        let opening = schedule.steps().iter().filter(|step| !step.opens.is_empty());
        let names = |ids: &[covey_program::ValueId]| ids.iter().map(|&id| program.value(id).name.clone()).collect();
        opening.map(|step| (step.name.clone(), names(&step.opens))).collect()
    }

    fn is(step: &str, opens: &[&str]) -> (String, Vec<String>) {
        (step.into(), opens.iter().map(|name| name.to_string()).collect())
    }

    #[test]
    fn what_two_products_multiply_is_opened_once_in_whatever_order_its_elements_stand() {
        let found = opened(|b| {
            let x = b.input("x", &[3, 4], 4);
            let turned = b.node("turn", Op::from(op::Transpose { permutation: vec![0, 2, 1] }), &[x]);
            let square = b.node("square", op::Matmul, &[x, turned]);
            b.output(square);
        });
        assert_eq!(found, [is("turn", &["x"])]);
    }

    #[test]
    fn what_one_product_multiplies_is_opened_by_it_unless_it_is_stretched() {
        let found = opened(|b| {
            let (x, few) = (b.input("x", &[3, 4], 4), b.input("few", &[1, 4], 4));
            let product = b.node("product", op::Mul, &[x, few]);
            let w = b.parameter("w", &[4, 4], 4);
            let layer = b.node("layer", op::Dense, &[product, w]);
            b.output(layer);
        });
        assert_eq!(found, [is("product", &["few"])]);
    }

    #[test]
    fn squares_and_products_with_constants_open_nothing_beforehand() {
        let found = opened(|b| {
            let x = b.input("x", &[2, 2], 4);
            let square = b.node("square", op::Mul, &[x, x]);
            let halves = b.constant("halves", &[2, 2], 4, vec![8; 4]);
            let halved = b.node("halve", op::Mul, &[square, halves]);
            let again = b.node("again", op::Mul, &[square, halves]);
            b.output(halved);
            b.output(again);
        });
        assert_eq!(found, []);
    }
}

//! Puts linear layers together in one step that do not need each other's results, as in the branches of Inception.

use std::collections::HashMap;

use covey_operators::Fusion;
use covey_operators::linear::may_run_parallel;
use covey_program::Program;

use super::Step;

/// Steps that run at once, by number; those before `checked` wait for nothing.
struct Group {
    members: Vec<usize>,
    checked: usize,
}

/// The steps with such layers put together. Other steps keep their order, but what a group reads runs before it.
pub(super) fn put_together(program: &Program, steps: Vec<Step>) -> Vec<Step> {
    let mut makers: Vec<Option<usize>> = vec![None; program.values().len()];
    // The most layers one after the other that a value depends on: of two layers with one number, neither needs the other's result.
    let mut depths: Vec<usize> = vec![0; program.values().len()];
    let mut groups: Vec<Group> = Vec::new();
    // By depth, and whether a ReLU follows.
    let mut known: HashMap<(usize, bool), usize> = HashMap::new();
    let mut group_of = Vec::with_capacity(steps.len());
    for (index, step) in steps.iter().enumerate() {
        let before = step.operands().map(|id| depths[id.index()]).max().unwrap_or(0);
        let is_layer = may_join(program, step);
        let new = groups.len();
        let group = if is_layer { *known.entry((before, step.relu.is_some())).or_insert(new) } else { new };
        match groups.get_mut(group) {
            Some(group) => group.members.push(index),
            None => groups.push(Group { members: vec![index], checked: 0 }),
        }
        makers[step.output.index()] = Some(index);
        depths[step.output.index()] = before + usize::from(is_layer);
        group_of.push(group);
    }
    let mut waiting: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    let mut order = Vec::with_capacity(waiting.len());
    for index in 0..waiting.len() {
        let mut wanted = vec![index];
        while let Some(&next) = wanted.last() {
            let group = &mut groups[group_of[next]];
            if let Some(maker) = group.missing(&waiting, &makers) {
                wanted.push(maker);
                continue;
            }
            wanted.pop();
            let mut members =
                std::mem::take(&mut group.members).into_iter().filter_map(|member| waiting[member].take());
            if let Some(first) = members.next() {
                order.push(joined(first, members.collect()));
            }
        }
    }
    order
}

impl Group {
    /// A step that has yet to run and whose result a member reads.
    fn missing(&mut self, waiting: &[Option<Step>], makers: &[Option<usize>]) -> Option<usize> {
        let waits = |maker: &usize| waiting[*maker].is_some();
        while let Some(&member) = self.members.get(self.checked) {
            let mut operands = waiting[member].iter().flat_map(Step::operands);
            let missing = operands.find_map(|id| makers[id.index()].filter(waits));
            if missing.is_some() {
                return missing;
            }
            self.checked += 1;
        }
        None
    }
}

/// Whether others may join the step.
fn may_join(program: &Program, step: &Step) -> bool {
    let alone = step.other.is_none() && step.residual.is_none() && step.truncate.is_some();
    let values: Vec<_> = step.inputs.iter().map(|&id| program.value(id)).collect();
    let linear = alone && step.op.fusion() == Fusion::Linear;
    linear && may_run_parallel(&values, |x, weight| step.op.geometry(x, weight))
}

/// The first step with others at the same time.
fn joined(first: Step, parallel: Vec<Step>) -> Step {
    let names: Vec<&str> = [&first].into_iter().chain(&parallel).map(|step| step.name.as_str()).collect();
    Step { name: names.join("+"), parallel, ..first }
}

//! This client's half of the protocol on one lane.

use std::collections::VecDeque;

use covey_program::{Program, ValueId};
use covey_protocols::Options;
use covey_protocols::kind::ServedProtocol;
use covey_protocols::served::ClientHalf;
use covey_ring::{Tensor, Word};
use covey_runtime::session::Visitor;
use covey_runtime::{INPUTS, Input, OUTPUTS, Output, RowForm, encode_inputs};
use covey_transport::Endpoint;

use crate::ClientError;

/// This client's half of the protocol, whatever protocol and ring.
pub(crate) trait Half: Send {
    /// Takes in the inputs of one more run, checked; returns its batch size.
    fn load(&mut self, program: &Program, inputs: &[Input]) -> Result<usize, ClientError>;
    /// Forgets what was loaded.
    fn clear(&mut self);
    /// Shares what was loaded first and receives the outputs.
    fn run(&mut self, program: &Program, batch: usize) -> Result<Vec<Output>, ClientError>;
    /// Receives what opens at the end of a sequence.
    fn end(&mut self, program: &Program, batch: usize) -> Result<Vec<Output>, ClientError>;
    /// Shares so many rows of `inputs`, of the form `form`, from row number `first` on.
    fn share_rows(
        &mut self,
        program: &Program,
        form: &RowForm,
        inputs: &[Input],
        rows: (usize, usize),
    ) -> Result<(), ClientError>;
    /// That these rows have integers in the program's ring.
    fn check_rows(
        &self,
        program: &Program,
        form: &RowForm,
        inputs: &[Input],
        rows: (usize, usize),
    ) -> Result<(), ClientError>;
}

struct Loaded<W: Word> {
    client: Box<dyn ClientHalf<W>>,
    inputs: VecDeque<Vec<Tensor<W>>>,
}

/// What a lane begins with.
pub(crate) struct Opening<'a> {
    pub endpoint: Box<dyn Endpoint>,
    pub program: &'a Program,
    pub options: Options,
}

impl Visitor for Opening<'_> {
    type Output = Result<Box<dyn Half>, ClientError>;

    fn clear(self) -> Self::Output {
        Err(ClientError::Request("clear computes in the open and has no sessions: use protocol trio".into()))
    }

    fn served<W: Word>(self, protocol: &dyn ServedProtocol<W>) -> Self::Output {
        let client = protocol.client(self.endpoint, self.program.ring(), self.options);
        Ok(Box::new(Loaded { client, inputs: VecDeque::new() }))
    }
}

impl<W: Word> Half for Loaded<W> {
    fn load(&mut self, program: &Program, inputs: &[Input]) -> Result<usize, ClientError> {
        let (inputs, batch) = encode_inputs(program, inputs)?;
        self.inputs.push_back(inputs);
        Ok(batch)
    }

    fn clear(&mut self) {
        self.inputs.clear();
    }

    fn run(&mut self, program: &Program, batch: usize) -> Result<Vec<Output>, ClientError> {
        self.client.enter(INPUTS);
        let inputs = self.inputs.pop_front().unwrap_or_default();
        inputs.iter().try_for_each(|input| self.client.send(input))?;
        self.receive(program, program.outputs().iter().copied(), batch)
    }

    fn end(&mut self, program: &Program, batch: usize) -> Result<Vec<Output>, ClientError> {
        self.receive(program, program.opened_at_end(), batch)
    }

    fn share_rows(
        &mut self,
        program: &Program,
        form: &RowForm,
        inputs: &[Input],
        rows: (usize, usize),
    ) -> Result<(), ClientError> {
        self.client.enter(INPUTS);
        form.encode(program, inputs, rows)?.iter().try_for_each(|input| Ok(self.client.send(input)?))
    }

    fn check_rows(
        &self,
        program: &Program,
        form: &RowForm,
        inputs: &[Input],
        rows: (usize, usize),
    ) -> Result<(), ClientError> {
        Ok(form.encode::<W>(program, inputs, rows).map(drop)?)
    }
}

impl<W: Word> Loaded<W> {
    fn receive(
        &mut self,
        program: &Program,
        ids: impl Iterator<Item = ValueId>,
        batch: usize,
    ) -> Result<Vec<Output>, ClientError> {
        self.client.enter(OUTPUTS);
        let one = |id| {
            let words = self.client.receive(&program.value(id).full_shape(batch))?;
            Ok(Output::new(program, id, &words))
        };
        ids.map(one).collect()
    }
}

//! What the list of operators in `lib.rs` stands for: their modules, the enum [`crate::Op`], and its dispatch.

/// Declares the operators, each as `module: Name`. The name is that of its struct and of its message on the wire.
macro_rules! operators {
    ($($module:ident: $Name:ident,)*) => {
        $(pub mod $module;)*

        /// The operators' structs.
        pub mod op {
            $(pub use crate::$module::$Name;)*
        }

        /// What a node computes: exact integer arithmetic on its operands. Axes count the batch dimension.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Op {
            $(#[doc = concat!("[`op::", stringify!($Name), "`].")] $Name(op::$Name),)*
        }

        $(impl From<op::$Name> for Op {
            fn from(op: op::$Name) -> Op {
                Op::$Name(op)
            }
        })*

        impl Op {
            /// Reads an operator's message. A refusal comes with the operator's name.
            pub fn decode(wire: wire::node::Op) -> Result<Op, (&'static str, String)> {
                match wire {
                    $(wire::node::Op::$Name(wire) => match op::$Name::decode(wire) {
                        Ok(op) => Ok(Op::$Name(op)),
                        Err(problem) => Err((stringify!($Name), problem)),
                    },)*
                }
            }

            /// Writes an operator's message.
            pub fn encode(&self) -> wire::node::Op {
                match self {
                    $(Op::$Name(op) => wire::node::Op::$Name(op.encode()),)*
                }
            }

            /// The operator's name as in the program format, such as "Conv2d".
            pub fn name(&self) -> &'static str {
                match self {
                    $(Op::$Name(_) => stringify!($Name),)*
                }
            }

            /// [`Operator::options`].
            pub fn options(&self) -> String {
                match self {
                    $(Op::$Name(op) => op.options(),)*
                }
            }

            /// [`Operator::form`].
            pub fn form(&self, operands: &[&Value], result: &Value, ring: Ring) -> Result<Form, String> {
                match self {
                    $(Op::$Name(op) => op.form(operands, result, ring),)*
                }
            }

            /// [`Operator::puts`].
            pub fn puts(&self, operands: &[&Value]) -> u64 {
                match self {
                    $(Op::$Name(op) => op.puts(operands),)*
                }
            }

            /// [`Operator::asks`].
            pub fn asks(&self, x: &Value, result: &Value) -> Asks {
                match self {
                    $(Op::$Name(op) => op.asks(x, result),)*
                }
            }

            /// [`Operator::builds`].
            pub fn builds(&self, x: &Value, result: &Value) -> usize {
                match self {
                    $(Op::$Name(op) => op.builds(x, result),)*
                }
            }

            /// [`Operator::part`].
            pub fn part(&self) -> Part {
                match self {
                    $(Op::$Name(op) => op.part(),)*
                }
            }

            /// [`Operator::geometry`].
            pub fn geometry(&self, x: &[usize], weight: &[usize]) -> covey_protocols::api::Result<Geometry> {
                match self {
                    $(Op::$Name(op) => op.geometry(x, weight),)*
                }
            }

            /// [`Operator::run`].
            pub fn run<P: Protocol>(&self, protocol: &mut P, call: &Call<P>) -> covey_protocols::api::Result<P::Arith> {
                match self {
                    $(Op::$Name(op) => op.run(protocol, call),)*
                }
            }
        }
    };
}

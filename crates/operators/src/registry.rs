//! What the list of operators in `lib.rs` stands for: their modules, the enum [`crate::Op`], and its dispatch.

/// Reads and writes a message that has the operator's own fields.
macro_rules! same_message {
    ($Name:ident { $($field:ident),* }) => {
        type Wire = wire::$Name;

        fn decode(wire: wire::$Name) -> Result<Self, String> {
            let wire::$Name { $($field),* } = wire;
            Ok($Name { $($field),* })
        }

        fn encode(&self) -> wire::$Name {
            let $Name { $($field),* } = self.clone();
            wire::$Name { $($field),* }
        }
    };
}

/// Declares the operators, each line `module: Names`. A name is that of a struct and of its message on the wire.
macro_rules! operators {
    ($dollar:tt $($module:ident: $($Name:ident),+;)*) => {
        $(pub mod $module;)*

        /// The operators' structs.
        pub mod op {
            $($(pub use crate::$module::$Name;)+)*
        }

        /// What a node computes: exact integer arithmetic on its operands. Axes count the batch dimension.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Op {
            $($(#[doc = concat!("[`op::", stringify!($Name), "`].")] $Name(op::$Name),)+)*
        }

        $($(impl From<op::$Name> for Op {
            fn from(op: op::$Name) -> Op {
                Op::$Name(op)
            }
        })+)*

        impl Op {
            /// Reads an operator's message. A refusal comes with the operator's name.
            pub fn decode(wire: wire::node::Op) -> Result<Op, (&'static str, String)> {
                match wire {
                    $($(wire::node::Op::$Name(wire) => match op::$Name::decode(wire) {
                        Ok(op) => Ok(Op::$Name(op)),
                        Err(problem) => Err((stringify!($Name), problem)),
                    },)+)*
                }
            }

            /// Writes an operator's message.
            pub fn encode(&self) -> wire::node::Op {
                match self {
                    $($(Op::$Name(op) => wire::node::Op::$Name(op.encode()),)+)*
                }
            }

            /// The operator's name as in the program format, such as "Conv2d".
            pub fn name(&self) -> &'static str {
                match self {
                    $($(Op::$Name(_) => stringify!($Name),)+)*
                }
            }
        }

        /// `call` on whichever operator it is.
        macro_rules! dispatch {
            ($dollar this:ident, $dollar op:ident => $dollar call:expr) => {
                match $dollar this {
                    $($(Op::$Name($dollar op) => $dollar call,)+)*
                }
            };
        }
    };
}

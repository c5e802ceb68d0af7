//! A checked expression, ready to be evaluated.
use crate::cost::CallCost;
use crate::library::Function;
use crate::value::Value;
use std::sync::Arc;

pub enum Node {
    Constant(Value<'static>),
    /// A variable of the environment.
    Variable(Arc<str>),
    /// A variable of a fold, by its place.
    Local(usize),
    Select {
        operand: Box<Node>,
        field: Arc<str>,
        access: Access,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        access: Access,
    },
    And(Vec<Node>),
    Or(Vec<Node>),
    Conditional(Box<[Node; 3]>),
    NotStrictlyFalse(Box<Node>),
    /// `optional.or(other)`, and `optional.orValue(other)` if it takes the value out.
    OrElse {
        target: Box<Node>,
        other: Box<Node>,
        value: bool,
    },
    Call {
        function: &'static Function,
        args: Vec<Node>,
        /// Instead of the function's own.
        cost: Option<CallCost>,
    },
    List(Vec<(Node, Optional)>),
    Map(Vec<(Node, Node, Optional)>),
    Struct {
        name: Arc<str>,
        fields: Vec<(Arc<str>, Node, Optional)>,
    },
    Fold(Box<FoldNode>),
    /// Adds to the list that a fold accumulates at this place.
    Push {
        place: usize,
        values: Vec<Node>,
    },
    /// Adds to the map that a fold accumulates at this place: a key and a value, or another map.
    Insert {
        place: usize,
        entry: Vec<Node>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// There must be something.
    Get,
    /// Whether there is something.
    Test,
    /// What there is, if anything.
    Optional,
}

/// Whether an element is left out if it has no value.
pub type Optional = bool;

pub struct FoldNode {
    pub range: Node,
    pub two: bool,
    pub init: Node,
    pub condition: Node,
    pub step: Node,
    pub result: Node,
}

impl Node {
    pub fn call(function: &'static Function, args: Vec<Node>) -> Node {
        Node::Call { function, args, cost: None }
    }

    pub fn constant(&self) -> Option<&Value<'static>> {
        if let Node::Constant(value) = self { Some(value) } else { None }
    }

    /// Whether this holds of it or of anything that it is made of.
    pub fn any(&self, holds: &dyn Fn(&Node) -> bool) -> bool {
        holds(self) || self.parts().into_iter().any(|part| part.any(holds))
    }

    fn parts(&self) -> Vec<&Node> {
        match self {
            Node::Constant(_) | Node::Variable(_) | Node::Local(_) => Vec::new(),
            Node::Select { operand, .. } => vec![&**operand],
            Node::Index { operand, index, .. } => vec![&**operand, &**index],
            Node::And(all) | Node::Or(all) => all.iter().collect(),
            Node::Conditional(all) => all.iter().collect(),
            Node::NotStrictlyFalse(one) => vec![&**one],
            Node::OrElse { target, other, .. } => vec![&**target, &**other],
            Node::Call { args, .. } => args.iter().collect(),
            Node::List(all) => all.iter().map(|(node, _)| node).collect(),
            Node::Map(all) => all.iter().flat_map(|(key, value, _)| [key, value]).collect(),
            Node::Struct { fields, .. } => fields.iter().map(|(_, node, _)| node).collect(),
            Node::Fold(fold) => {
                vec![&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
            }
            Node::Push { values, .. } => values.iter().collect(),
            Node::Insert { entry, .. } => entry.iter().collect(),
        }
    }

    /// Whether it is a name and what follows it, which has one cost for the name.
    pub fn is_attribute(&self) -> bool {
        match self {
            Node::Variable(_) | Node::Local(_) | Node::Conditional(_) => true,
            Node::Select { access, .. } | Node::Index { access, .. } => *access != Access::Test,
            _ => false,
        }
    }
}

//! Nodes and what follows what.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::rc::Rc;

use super::Graph;
use crate::progress::Ctx;

/// What a node does.
pub(super) enum Kind {
    /// Submits a task of this context.
    Ctx(Rc<Ctx>),
    /// Calls this function.
    Function(unsafe extern "C" fn(*mut c_void) -> u32),
    /// Submits an instance of this graph.
    Graph(Rc<Graph>),
}

/// A node of a graph.
pub(crate) struct Node {
    /// Only compared.
    graph: *const Graph,
    index: usize,
    kind: Kind,
    /// Indices of the nodes that wait for this one.
    next: RefCell<Vec<usize>>,
    /// How many nodes this one waits for.
    waits_for: Cell<usize>,
}

impl Node {
    pub(super) fn new(graph: &Graph, index: usize, kind: Kind) -> Rc<Node> {
        Rc::new(Node {
            graph,
            index,
            kind,
            next: RefCell::default(),
            waits_for: Cell::new(0),
        })
    }

    pub(super) fn is_of(&self, graph: &Graph) -> bool {
        std::ptr::eq(self.graph, graph)
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    pub(super) fn kind(&self) -> &Kind {
        &self.kind
    }

    pub(super) fn waits_for(&self) -> usize {
        self.waits_for.get()
    }

    pub(super) fn next(&self) -> Vec<usize> {
        self.next.borrow().clone()
    }

    /// Lets another node of the same graph wait for this one; once is enough.
    pub(super) fn precede(&self, other: &Node) {
        let mut next = self.next.borrow_mut();
        if !next.contains(&other.index) {
            next.push(other.index);
            other.waits_for.set(other.waits_for.get() + 1);
        }
    }
}

/// Whether there is a way from one node to another; every node leads to itself.
pub(super) fn leads_to(nodes: &[Rc<Node>], from: usize, to: usize) -> bool {
    let mut seen = vec![false; nodes.len()];
    let mut open = vec![from];
    while let Some(index) = open.pop() {
        if index == to {
            return true;
        }
        if !std::mem::replace(&mut seen[index], true) {
            open.extend(nodes[index].next.borrow().iter());
        }
    }
    false
}

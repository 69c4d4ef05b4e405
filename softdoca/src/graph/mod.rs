//! Graphs: tasks and functions of the program in an order, run as one.
//!
//! * [`Graph`] is the order: [`Node`]s and which of them wait for which.
//! * [`Instance`] is one run: the tasks and arguments of the nodes, and how far it has come.
//! * A started graph is a context of its own under its engine (`runner`), so that functions and completion callbacks run
//!   inside of progress, as all callbacks do.

mod instance;
mod node;
mod runner;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use doca_abi::{doca_data, doca_graph_completion_cb_t, doca_graph_user_node_cb_t};

pub(crate) use instance::{Data, Instance};
pub(crate) use node::Node;

use crate::error::{Error, Result};
use crate::progress::{Ctx, CtxState, Pe};
use node::Kind;
use runner::Runner;

/// What is called when an instance has ended, and how many instances there may be.
#[derive(Clone, Copy)]
struct Conf {
    on_success: GraphCallback,
    on_error: GraphCallback,
    limit: u32,
}

type GraphCallback = unsafe extern "C" fn(*mut doca_abi::doca_graph_instance, doca_data, doca_data);

/// An order of tasks and functions.
pub(crate) struct Graph {
    pe: Rc<Pe>,
    conf: Cell<Option<Conf>>,
    user_data: Cell<doca_data>,
    nodes: RefCell<Vec<Rc<Node>>>,
    instances: Cell<u32>,
    /// While the graph is started.
    runner: RefCell<Option<Rc<Ctx>>>,
}

impl Graph {
    pub(crate) fn new(pe: Rc<Pe>) -> Rc<Graph> {
        Rc::new(Graph {
            pe,
            conf: Cell::new(None),
            user_data: Cell::new(doca_data { u64: 0 }),
            nodes: RefCell::default(),
            instances: Cell::new(0),
            runner: RefCell::default(),
        })
    }

    pub(crate) fn is_started(&self) -> bool {
        self.runner.borrow().is_some()
    }

    fn expect_stopped(&self, what: &str) -> Result<()> {
        match self.is_started() {
            true => Err(Error::BadState.because(format_args!("{what} while the graph is stopped"))),
            false => Ok(()),
        }
    }

    pub(crate) fn check_destroyable(&self) -> Result<()> {
        self.expect_stopped("a graph is destroyed")
    }

    /// Sets callbacks and the number of instances.
    pub(crate) fn configure(
        &self,
        on_success: doca_graph_completion_cb_t,
        on_error: doca_graph_completion_cb_t,
        limit: u32,
    ) -> Result<()> {
        self.expect_stopped("a graph is configured")?;
        let (Some(on_success), Some(on_error)) = (on_success, on_error) else {
            return Err(Error::InvalidValue.because("expected two completion callbacks, got NULL"));
        };
        if limit == 0 {
            return Err(Error::InvalidValue.because("expected at least 1 instance, got 0"));
        }
        self.conf.set(Some(Conf {
            on_success,
            on_error,
            limit,
        }));
        Ok(())
    }

    pub(crate) fn set_user_data(&self, data: doca_data) -> Result<()> {
        self.expect_stopped("user data is set")?;
        self.user_data.set(data);
        Ok(())
    }

    pub(crate) fn user_data(&self) -> doca_data {
        self.user_data.get()
    }

    /// Adds a node that runs tasks of a context.
    pub(crate) fn add_ctx(&self, ctx: Rc<Ctx>) -> Result<Rc<Node>> {
        self.add(Kind::Ctx(ctx))
    }

    /// Adds a node that calls a function.
    pub(crate) fn add_function(&self, function: doca_graph_user_node_cb_t) -> Result<Rc<Node>> {
        let function =
            function.ok_or_else(|| Error::InvalidValue.because("expected a function, got NULL"))?;
        self.add(Kind::Function(function))
    }

    /// Adds a node that runs instances of another graph.
    pub(crate) fn add_graph(&self, graph: Rc<Graph>) -> Result<Rc<Node>> {
        // One that is started cannot get nodes any more: there is no other way to a circle.
        if std::ptr::eq(self, &*graph) {
            return Err(Error::NotPermitted.because("a graph cannot be a node of itself"));
        }
        if !graph.is_started() {
            return Err(Error::BadState.because("start the inner graph first"));
        }
        if !Rc::ptr_eq(&self.pe, &graph.pe) {
            return Err(Error::NotPermitted.because("both graphs must have the same engine"));
        }
        self.add(Kind::Graph(graph))
    }

    fn add(&self, kind: Kind) -> Result<Rc<Node>> {
        self.expect_stopped("nodes are added")?;
        let mut nodes = self.nodes.borrow_mut();
        let node = Node::new(self, nodes.len(), kind);
        nodes.push(Rc::clone(&node));
        Ok(node)
    }

    /// Lets a node run only after another one.
    pub(crate) fn add_dependency(&self, from: &Node, to: &Node) -> Result<()> {
        self.expect_stopped("dependencies are added")?;
        if !from.is_of(self) || !to.is_of(self) {
            return Err(Error::InvalidValue.because("both nodes must be of this graph"));
        }
        let nodes = self.nodes.borrow();
        if node::leads_to(&nodes, to.index(), from.index()) {
            return Err(Error::NotPermitted.because("the dependency would close a circle"));
        }
        from.precede(to);
        Ok(())
    }

    /// Makes instances possible. A graph that is started stays so.
    pub(crate) fn start(&self) -> Result<()> {
        if self.is_started() {
            return Ok(());
        }
        if self.conf.get().is_none() {
            return Err(Error::BadState.because("configure the graph before the start"));
        }
        let nodes = self.nodes.borrow();
        if nodes
            .iter()
            .all(|node| matches!(node.kind(), Kind::Function(_)))
        {
            return Err(Error::BadState.because("expected at least one node with a context"));
        }
        for node in nodes.iter() {
            if let Kind::Ctx(ctx) = node.kind()
                && ctx.state() != CtxState::Running
            {
                return Err(Error::BadState.because(format_args!(
                    "expected the contexts of all nodes to be running, one is {:?}",
                    ctx.state()
                )));
            }
        }
        let ctx = Ctx::new(Runner::default());
        self.pe.connect(&ctx)?;
        ctx.start()?;
        *self.runner.borrow_mut() = Some(ctx);
        Ok(())
    }

    /// Ends [`start`](Self::start); not while there are instances.
    pub(crate) fn stop(&self) -> Result<()> {
        if self.instances.get() > 0 {
            return Err(Error::InUse.because(format_args!(
                "destroy the {} instances of the graph first",
                self.instances.get()
            )));
        }
        let runner = self.runner.borrow_mut().take();
        match runner {
            Some(ctx) => {
                ctx.stop()?;
                ctx.disconnect()
            }
            None => Ok(()),
        }
    }

    fn runner(&self) -> Result<Rc<Ctx>> {
        let runner = self.runner.borrow().clone();
        runner.ok_or_else(|| Error::BadState.because("the graph is not started"))
    }

    fn nodes(&self) -> std::cell::Ref<'_, Vec<Rc<Node>>> {
        self.nodes.borrow()
    }

    /// Takes a place for an instance.
    fn enter(&self) -> Result<()> {
        self.runner()?;
        let limit = self.conf.get().map_or(0, |conf| conf.limit);
        if self.instances.get() >= limit {
            return Err(Error::NoMemory.because(format_args!(
                "all {limit} instances of the graph are created"
            )));
        }
        self.instances.set(self.instances.get() + 1);
        Ok(())
    }

    fn leave(&self) {
        self.instances.set(self.instances.get() - 1);
    }
}

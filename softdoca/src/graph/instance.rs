//! Instances: runs of a graph.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

use doca_abi::doca_data;

use super::node::Kind;
use super::runner::{Runner, Work};
use super::{Graph, Node};
use crate::error::{Error, Result};
use crate::progress::{Completion, CtxState, Task};

/// What an instance has for a node.
#[derive(Clone)]
pub(crate) enum Data {
    /// For a node with a context.
    Task(NonNull<Task>),
    /// For a node with a function.
    Cookie(*mut c_void),
    /// For a node with a graph.
    Instance(Rc<Instance>),
}

/// One run of a graph.
pub(crate) struct Instance {
    graph: Rc<Graph>,
    data: RefCell<Vec<Option<Data>>>,
    user_data: Cell<doca_data>,
    submitted: Cell<bool>,
    /// How many nodes hold this instance as their data.
    holders: Cell<usize>,
    /// For each node, how many others it still waits for.
    waits_for: RefCell<Vec<usize>>,
    /// Nodes that have begun and not ended.
    running: Cell<usize>,
    failed: Cell<Option<Error>>,
    /// The node of another instance that this run belongs to.
    outer: RefCell<Option<(Rc<Instance>, usize)>>,
}

/// A context node of an instance that waits for its task.
struct Run {
    instance: Rc<Instance>,
    node: usize,
}

impl Completion for Run {
    fn ended(self: Rc<Self>, result: Result<()>) {
        self.instance.ended(self.node, result);
    }
}

impl Instance {
    /// An instance of a started graph, without data.
    pub(crate) fn new(graph: Rc<Graph>) -> Result<Rc<Instance>> {
        graph.enter()?;
        let nodes = graph.nodes().len();
        Ok(Rc::new(Instance {
            graph,
            data: RefCell::new(vec![None; nodes]),
            user_data: Cell::new(doca_data { u64: 0 }),
            submitted: Cell::new(false),
            holders: Cell::new(0),
            waits_for: RefCell::default(),
            running: Cell::new(0),
            failed: Cell::new(None),
            outer: RefCell::default(),
        }))
    }

    /// Gives up the instance's place in its graph.
    pub(crate) fn retire(&self) -> Result<()> {
        if self.submitted.get() || self.holders.get() > 0 {
            return Err(Error::InUse.because("the instance is submitted, or a node's data"));
        }
        for data in self.data.take().into_iter().flatten() {
            data.release();
        }
        self.graph.leave();
        Ok(())
    }

    pub(crate) fn set_user_data(&self, data: doca_data) -> Result<()> {
        if self.submitted.get() {
            return Err(Error::InUse.because("the instance is submitted"));
        }
        self.user_data.set(data);
        Ok(())
    }

    pub(crate) fn user_data(&self) -> doca_data {
        self.user_data.get()
    }

    /// Sets what the instance has for a node.
    pub(crate) fn set_data(&self, node: &Node, data: Data) -> Result<()> {
        if self.submitted.get() {
            return Err(Error::BadState.because("the instance is submitted"));
        }
        let fits = node.is_of(&self.graph)
            && match (node.kind(), &data) {
                // SAFETY: the program set a live task.
                (Kind::Ctx(ctx), Data::Task(task)) => unsafe {
                    std::ptr::eq(task.as_ref().ctx(), &**ctx)
                },
                (Kind::Function(_), Data::Cookie(_)) => true,
                (Kind::Graph(graph), Data::Instance(inner)) => {
                    Rc::ptr_eq(graph, &inner.graph) && !inner.submitted.get()
                }
                _ => false,
            };
        if !fits {
            return Err(Error::NotPermitted.because(
                "the node is of another graph or kind, or the data of another context or graph",
            ));
        }
        if let Data::Instance(inner) = &data {
            inner.holders.set(inner.holders.get() + 1);
        }
        let before = self.data.borrow_mut()[node.index()].replace(data);
        if let Some(before) = before {
            before.release();
        }
        Ok(())
    }

    /// Runs the instance.
    pub(crate) fn submit(self: &Rc<Self>) -> Result<()> {
        self.check()?;
        let runner = self.graph.runner()?;
        self.begin(None)?;
        // Functions wait in the runner, for progress.
        runner.stir();
        Ok(())
    }

    /// Checks that the instance can run.
    fn check(&self) -> Result<()> {
        if self.submitted.get() {
            return Err(Error::InUse.because("the instance is submitted already"));
        }
        for (node, data) in self.graph.nodes().iter().zip(self.data.borrow().iter()) {
            match (node.kind(), data) {
                (Kind::Ctx(ctx), Some(Data::Task(_))) => {
                    if ctx.state() != CtxState::Running {
                        return Err(Error::BadState.because("a node's context is not running"));
                    }
                }
                (Kind::Graph(_), Some(Data::Instance(inner))) => inner.check()?,
                (Kind::Function(_), _) => {}
                _ => {
                    return Err(Error::InvalidValue
                        .because(format_args!("node {} has no data", node.index())));
                }
            }
        }
        Ok(())
    }

    /// Begins with the nodes that wait for nothing. An error means that nothing has begun.
    fn begin(self: &Rc<Self>, outer: Option<(Rc<Instance>, usize)>) -> Result<()> {
        if self.submitted.get() {
            // Two nodes have the same instance.
            return Err(Error::InUse.because("the instance is submitted already"));
        }
        *self.waits_for.borrow_mut() = self
            .graph
            .nodes()
            .iter()
            .map(|node| node.waits_for())
            .collect();
        self.failed.set(None);
        self.submitted.set(true);
        *self.outer.borrow_mut() = outer;
        let roots: Vec<usize> = self
            .graph
            .nodes()
            .iter()
            .filter(|node| node.waits_for() == 0)
            .map(|node| node.index())
            .collect();
        self.run(&roots);
        match self.failed.get() {
            Some(error) if self.running.get() == 0 => {
                self.submitted.set(false);
                *self.outer.borrow_mut() = None;
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Runs nodes, until one fails.
    fn run(self: &Rc<Self>, nodes: &[usize]) {
        for &node in nodes {
            if self.failed.get().is_some() {
                return;
            }
            self.running.set(self.running.get() + 1);
            if let Err(error) = self.try_run(node) {
                self.running.set(self.running.get() - 1);
                self.fail(error);
            }
        }
    }

    /// Runs a node. It may wait for room in its context.
    fn try_run(self: &Rc<Self>, node: usize) -> Result<()> {
        let runner = self.graph.runner()?;
        let runner = runner.driver_as::<Runner>()?;
        let data = self.data.borrow()[node].clone();
        match data {
            Some(Data::Task(task)) => {
                let run = Run {
                    instance: Rc::clone(self),
                    node,
                };
                // SAFETY: the program keeps the tasks of an instance as long as it submits the instance.
                match unsafe { task.as_ref() }.submit_for(Rc::new(run)) {
                    Err(Error::Again) => {
                        runner.wait(Rc::clone(self), node);
                        Ok(())
                    }
                    submitted => submitted,
                }
            }
            Some(Data::Instance(inner)) => inner.begin(Some((Rc::clone(self), node))),
            Some(Data::Cookie(_)) | None => {
                runner.push(Work::Function(Rc::clone(self), node));
                Ok(())
            }
        }
    }

    /// Tries to submit a task again, whose context was full.
    pub(super) fn retry(self: &Rc<Self>, node: usize) {
        if self.failed.get().is_some() {
            // Nothing new is submitted. This node has not begun, so it is no failure of its own.
            self.ended(node, Ok(()));
        } else if let Err(error) = self.try_run(node) {
            self.ended(node, Err(error));
        }
    }

    /// Calls a node's function.
    pub(super) fn call(self: &Rc<Self>, node: usize) {
        if self.failed.get().is_some() {
            self.ended(node, Ok(()));
            return;
        }
        let cookie = match self.data.borrow()[node] {
            Some(Data::Cookie(cookie)) => cookie,
            _ => null_mut(),
        };
        let function = match self.graph.nodes()[node].kind() {
            Kind::Function(function) => *function,
            _ => return,
        };
        // SAFETY: the program gave the function for this node, and the argument for it; nothing is borrowed.
        let answer = unsafe { function(cookie) };
        let result = match answer {
            0 => Ok(()),
            code => Err(Error::from_code(code).unwrap_or(Error::Unknown)),
        };
        self.ended(node, result);
    }

    fn fail(&self, error: Error) {
        if self.failed.get().is_none() {
            self.failed.set(Some(error));
        }
    }

    /// A node has ended: runs what waited for it, or ends the run.
    fn ended(self: &Rc<Self>, node: usize, result: Result<()>) {
        self.running.set(self.running.get() - 1);
        match result {
            Err(error) => self.fail(error),
            Ok(()) => self.run(&self.freed_by(node)),
        }
        if self.running.get() > 0 {
            return;
        }
        let outer = self.outer.borrow_mut().take();
        match outer {
            Some((outer, node)) => {
                self.submitted.set(false);
                outer.ended(node, self.failed.get().map_or(Ok(()), Err));
            }
            None => {
                // It can be stopped only when it has no instances any more, so it is there.
                if let Ok(ctx) = self.graph.runner()
                    && let Ok(runner) = ctx.driver_as::<Runner>()
                {
                    runner.push(Work::Ended(Rc::clone(self)));
                }
            }
        }
    }

    /// The nodes that wait for nothing any more now that this one has ended.
    fn freed_by(&self, node: usize) -> Vec<usize> {
        let mut waits_for = self.waits_for.borrow_mut();
        let mut next = self.graph.nodes()[node].next();
        next.retain(|next| {
            waits_for[*next] -= 1;
            waits_for[*next] == 0
        });
        next
    }

    /// Tells the program that the run has ended. The instance is the program's again: it may submit or destroy it.
    pub(super) fn tell(self: &Rc<Self>) {
        self.submitted.set(false);
        let Some(conf) = self.graph.conf.get() else {
            return;
        };
        let callback = match self.failed.get() {
            None => conf.on_success,
            Some(_) => conf.on_error,
        };
        let handle = Rc::as_ptr(self).cast_mut().cast();
        // SAFETY: the program gave the function for instances of this graph; nothing is borrowed.
        unsafe { callback(handle, self.user_data.get(), self.graph.user_data()) };
    }
}

impl Data {
    fn release(self) {
        if let Data::Instance(inner) = self {
            inner.holders.set(inner.holders.get() - 1);
        }
    }
}

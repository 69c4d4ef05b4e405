//! Graphs: tasks and functions of the program, run in the order of their dependencies.
//!
//! * [`Graph`] holds the [`Node`]s and their dependencies.
//! * [`Instance`] is one run: the tasks and arguments of the nodes, and the progress of the run.
//! * A started graph is a context under its engine ([`Runner`]), so that functions and completion callbacks run inside
//!   progress, like all callbacks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::rc::Rc;

use doca_abi::{doca_data, doca_graph_completion_cb_t, doca_graph_user_node_cb_t};

use crate::error::{Error, Result};
use crate::progress::{Completion, Ctx, CtxState, Driver, Event, Pe, Started, Task};

/// Completion callbacks and the maximum number of instances.
#[derive(Clone, Copy)]
struct Conf {
    on_success: GraphCallback,
    on_error: GraphCallback,
    limit: u32,
}

type GraphCallback = unsafe extern "C" fn(*mut doca_abi::doca_graph_instance, doca_data, doca_data);

pub(crate) struct Graph {
    pe: Rc<Pe>,
    conf: Cell<Option<Conf>>,
    user_data: Cell<doca_data>,
    nodes: RefCell<Vec<Rc<Node>>>,
    instances: Cell<u32>,
    /// `Some` while the graph is started.
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
            true => {
                Err(Error::BadState.because(format_args!("{what} only while the graph is stopped")))
            }
            false => Ok(()),
        }
    }

    pub(crate) fn check_destroyable(&self) -> Result<()> {
        self.expect_stopped("a graph is destroyed")
    }

    /// Sets the callbacks and the maximum number of instances.
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

    /// Adds a node that submits a task of a context.
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
        // Nodes cannot be added to started graphs, so this is the only way to create a cycle of graphs.
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

    /// Adds a dependency: `to` runs only after `from`.
    pub(crate) fn add_dependency(&self, from: &Node, to: &Node) -> Result<()> {
        self.expect_stopped("dependencies are added")?;
        if !from.is_of(self) || !to.is_of(self) {
            return Err(Error::InvalidValue.because("both nodes must be of this graph"));
        }
        let nodes = self.nodes.borrow();
        if leads_to(&nodes, to.index(), from.index()) {
            return Err(Error::NotPermitted.because("the dependency would create a cycle"));
        }
        from.precede(to);
        Ok(())
    }

    /// Allows the creation of instances. A graph cannot be stopped once started.
    pub(crate) fn start(&self) -> Result<()> {
        self.expect_stopped("start it again")?;
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

    /// Reverses [`start`](Self::start); refused while instances exist.
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
                ctx.disconnect(Error::InUse)
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

    /// Counts a new instance, up to the maximum.
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

/// Action of a node.
enum Kind {
    /// Submits a task of this context.
    Ctx(Rc<Ctx>),
    Function(unsafe extern "C" fn(*mut c_void) -> u32),
    /// Submits an instance of this graph.
    Graph(Rc<Graph>),
}

/// A node of a graph.
pub(crate) struct Node {
    /// Used only for comparison.
    graph: *const Graph,
    index: usize,
    kind: Kind,
    /// Indices of the nodes that depend on this one.
    next: RefCell<Vec<usize>>,
    /// Number of nodes on which this one depends.
    waits_for: Cell<usize>,
}

impl Node {
    fn new(graph: &Graph, index: usize, kind: Kind) -> Rc<Node> {
        Rc::new(Node {
            graph,
            index,
            kind,
            next: RefCell::default(),
            waits_for: Cell::new(0),
        })
    }

    fn is_of(&self, graph: &Graph) -> bool {
        std::ptr::eq(self.graph, graph)
    }

    fn index(&self) -> usize {
        self.index
    }

    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn waits_for(&self) -> usize {
        self.waits_for.get()
    }

    fn next(&self) -> Vec<usize> {
        self.next.borrow().clone()
    }

    /// Makes another node of the same graph depend on this one; repeated calls have no effect.
    fn precede(&self, other: &Node) {
        let mut next = self.next.borrow_mut();
        if !next.contains(&other.index) {
            next.push(other.index);
            other.waits_for.set(other.waits_for.get() + 1);
        }
    }
}

/// `true` if there is a path from one node to another; every node is reachable from itself.
fn leads_to(nodes: &[Rc<Node>], from: usize, to: usize) -> bool {
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

/// An instance's data for a node.
#[derive(Clone)]
pub(crate) enum Data {
    /// For a node with a context.
    Task(NonNull<Task>),
    /// For a node with a function.
    Cookie(*mut c_void),
    /// For a node with a subgraph.
    Instance(Rc<Instance>),
}

/// One run of a graph.
pub(crate) struct Instance {
    graph: Rc<Graph>,
    data: RefCell<Vec<Option<Data>>>,
    user_data: Cell<doca_data>,
    submitted: Cell<bool>,
    /// Number of nodes that have this instance as their data.
    holders: Cell<usize>,
    /// For each node, the number of dependencies that have not completed.
    waits_for: RefCell<Vec<usize>>,
    /// Nodes that were started and have not completed yet.
    running: Cell<usize>,
    failed: Cell<Option<Error>>,
    /// The node of another instance that this run belongs to.
    outer: RefCell<Option<(Rc<Instance>, usize)>>,
}

/// A context node of an instance that waits for its task's completion.
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
    /// Creates an instance of a started graph, without data.
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

    /// Removes the instance from its graph's count.
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

    /// Sets the instance's data for a node.
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

    pub(crate) fn submit(self: &Rc<Self>) -> Result<()> {
        self.check()?;
        let runner = self.graph.runner()?;
        self.begin(None)?;
        // Functions are queued in the runner and called by progress.
        runner.stir();
        Ok(())
    }

    /// Checks that the instance can run.
    fn check(&self) -> Result<()> {
        if self.submitted.get() {
            return Err(Error::InUse.because("the instance is already submitted"));
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

    /// Starts the nodes without dependencies. After an error, no node has been started.
    fn begin(self: &Rc<Self>, outer: Option<(Rc<Instance>, usize)>) -> Result<()> {
        if self.submitted.get() {
            // Two nodes have the same instance.
            return Err(Error::InUse.because("the instance is already submitted"));
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

    /// Runs nodes until one fails.
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

    /// Runs a node. It is queued if its context is full.
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
                    Err(Error::Again | Error::Full) => {
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

    /// Resubmits a task whose context was full.
    fn retry(self: &Rc<Self>, node: usize) {
        if self.failed.get().is_some() {
            // The run has failed and submits no further nodes. This node was not started, so it has not failed itself.
            self.ended(node, Ok(()));
        } else if let Err(error) = self.try_run(node) {
            self.ended(node, Err(error));
        }
    }

    fn call(self: &Rc<Self>, node: usize) {
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
        // SAFETY: the program set the function and its argument for this node; no borrow is active.
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

    /// Handles the completion of a node: runs the nodes that became ready, or completes the run.
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
                // The runner exists: a graph with instances cannot be stopped.
                if let Ok(ctx) = self.graph.runner()
                    && let Ok(runner) = ctx.driver_as::<Runner>()
                {
                    runner.push(Work::Ended(Rc::clone(self)));
                }
            }
        }
    }

    /// The nodes whose last dependency was this one.
    fn freed_by(&self, node: usize) -> Vec<usize> {
        let mut waits_for = self.waits_for.borrow_mut();
        let mut next = self.graph.nodes()[node].next();
        next.retain(|next| {
            waits_for[*next] -= 1;
            waits_for[*next] == 0
        });
        next
    }

    /// Calls the program's completion callback. The program owns the instance again, and may submit or destroy it.
    fn tell(self: &Rc<Self>) {
        self.submitted.set(false);
        let Some(conf) = self.graph.conf.get() else {
            return;
        };
        let callback = match self.failed.get() {
            None => conf.on_success,
            Some(_) => conf.on_error,
        };
        let handle = Rc::as_ptr(self).cast_mut().cast();
        // SAFETY: the program set the callback for instances of this graph; no borrow is active.
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

/// An action deferred to progress.
enum Work {
    /// Call a node's function.
    Function(Rc<Instance>, usize),
    /// Report that an instance has completed.
    Ended(Rc<Instance>),
}

#[derive(Default)]
struct Runner {
    work: RefCell<VecDeque<Work>>,
    /// Tasks whose context was full; retried in every iteration.
    waiting: RefCell<VecDeque<(Rc<Instance>, usize)>>,
}

impl Runner {
    fn push(&self, work: Work) {
        self.work.borrow_mut().push_back(work);
    }

    fn wait(&self, instance: Rc<Instance>, node: usize) {
        self.waiting.borrow_mut().push_back((instance, node));
    }

    /// Retries every queued task once.
    fn retry(&self) {
        let waiting = self.waiting.borrow().len();
        for _ in 0..waiting {
            let next = self.waiting.borrow_mut().pop_front();
            if let Some((instance, node)) = next {
                instance.retry(node);
            }
        }
    }
}

impl Driver for Runner {
    fn start(&self, _: &Ctx) -> Result<Started> {
        Ok(Started::Running)
    }

    fn submit(&self, _: &Ctx, _: &Task) -> Result<()> {
        // This context has no tasks.
        Err(Error::InvalidValue)
    }

    fn next_event(&self, ctx: &Ctx) -> Option<Event> {
        let mut work = self.work.borrow_mut().pop_front();
        if work.is_none() && !self.waiting.borrow().is_empty() {
            self.retry();
            work = self.work.borrow_mut().pop_front();
            if work.is_none() && !self.waiting.borrow().is_empty() {
                // No wake-up is sent when the context has a free slot again, so the engine must not sleep.
                ctx.stir();
            }
        }
        Some(Event::Call(match work? {
            Work::Function(instance, node) => Box::new(move || instance.call(node)),
            Work::Ended(instance) => Box::new(move || instance.tell()),
        }))
    }

    fn flush(&self, _: &Ctx) {
        // There are no tasks to flush: a graph with instances cannot be stopped.
    }

    fn finish_stop(&self, _: &Ctx) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::os::fd::BorrowedFd;
    use std::ptr::NonNull;
    use std::rc::Rc;

    use doca_abi::{doca_data, doca_graph_instance, doca_task};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::{Data, Graph, Instance};
    use crate::error::{Error, Result};
    use crate::progress::{Ctx, Driver, Event, Pe, Started, Task, TaskOf, TaskPool};

    /// A driver with one task slot.
    #[derive(Default)]
    struct Narrow {
        pool: TaskPool,
        task: RefCell<VecDeque<NonNull<Task>>>,
        refused: Cell<u32>,
        /// If set, tasks do not complete.
        stuck: Cell<bool>,
    }

    impl Driver for Narrow {
        fn start(&self, _: &Ctx) -> Result<Started> {
            Ok(Started::Running)
        }

        fn submit(&self, _: &Ctx, task: &Task) -> Result<()> {
            let mut slot = self.task.borrow_mut();
            if !slot.is_empty() {
                self.refused.set(self.refused.get() + 1);
                return Err([Error::Again, Error::Full][self.refused.get() as usize % 2]);
            }
            slot.push_back(NonNull::from(task));
            Ok(())
        }

        fn next_event(&self, _: &Ctx) -> Option<Event> {
            if self.stuck.get() {
                return None;
            }
            let task = self.task.borrow_mut().pop_front()?;
            Some(Event::Task(task, Ok(())))
        }

        fn flush(&self, _: &Ctx) {}

        fn finish_stop(&self, _: &Ctx) -> bool {
            true
        }
    }

    unsafe extern "C" fn never(_: *mut doca_task, _: doca_data, _: doca_data) {
        panic!("a graph's tasks do not call back");
    }

    unsafe extern "C" fn count(_: *mut doca_graph_instance, data: doca_data, _: doca_data) {
        // SAFETY: the instance data of the test points to its counter.
        let ended = unsafe { &*data.ptr.cast::<Cell<u32>>() };
        ended.set(ended.get() + 1);
    }

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("a descriptor") == 1
    }

    #[test]
    fn submission_to_a_full_context_is_retried() {
        let pe = Pe::new().expect("an engine");
        let ctx = Ctx::new(Narrow::default());
        let narrow = ctx.driver_as::<Narrow>().expect("its driver");
        let configured = narrow.pool.configure(&ctx, Some(never), Some(never), 4);
        configured.expect("a pool");
        pe.connect(&ctx).expect("a fresh context");
        ctx.start().expect("a driver that starts");

        let ended = Cell::new(0);
        let graph = Graph::new(Rc::clone(&pe));
        graph
            .configure(Some(count), Some(count), 1)
            .expect("stopped");
        let nodes: Vec<_> = (0..4)
            .map(|_| graph.add_ctx(Rc::clone(&ctx)).expect("stopped"))
            .collect();
        graph.start().expect("a running context");
        let instance = Instance::new(Rc::clone(&graph)).expect("started");
        let data = doca_data {
            ptr: std::ptr::from_ref(&ended).cast_mut().cast(),
        };
        instance.set_user_data(data).expect("not submitted");
        let tasks: Vec<NonNull<Task>> = nodes
            .iter()
            .map(|node| {
                let none = doca_data { u64: 0 };
                let task: NonNull<TaskOf<()>> =
                    narrow.pool.allocate(&ctx, (), none).expect("room for four");
                let task = task.cast();
                instance.set_data(node, Data::Task(task)).expect("fits");
                task
            })
            .collect();

        narrow.stuck.set(true);
        instance.submit().expect("complete");
        assert_eq!(narrow.refused.get(), 3, "one of four at a time");
        pe.arm();
        assert!(
            is_readable(pe.notification_fd()),
            "a wait for the engine returns"
        );
        pe.wake_up();
        narrow.stuck.set(false);
        for _ in 0..100 {
            pe.progress();
        }
        assert_eq!(ended.get(), 1, "all four have run");
        // SAFETY: live tasks, none in flight.
        tasks
            .iter()
            .for_each(|task| unsafe { Task::free(*task) }.expect("not in flight"));
        instance.retire().expect("not submitted");
        graph.stop().expect("no instances");
        assert_eq!(ctx.stop(), Ok(()));
        ctx.disconnect(Error::InUse).expect("idle");
        assert_eq!(pe.check_unused(), Ok(()), "the graph's own context is gone");
    }
}

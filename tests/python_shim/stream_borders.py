"""Programs of several CUDA streams at the borders of what a schedule may do: as those of stream_programs.py."""

# By name, as there.
BORDERS = {
    "times": (
        """
def make():
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    def body(k):
        began.record()
        net(torch.randn(256, 64, device="cuda")).square().mean().backward()
        ended.record()
        optimizer.step()
        optimizer.zero_grad()
        ended.synchronize()
        began.elapsed_time(ended)
    return body
""",
        10,
    ),
    "asks": (
        """
def make():
    two, event = side(), torch.cuda.Event()
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        x = source[k].cuda(non_blocking=True)
        y = x.clone()
        event.record()
        while not event.query():
            pass
        with torch.cuda.stream(two):
            z = y.clone()
        while not two.query():
            pass
        return [z.clone()]
    return body
""",
        10,
    ),
    "average_behind_the_step": (
        """
def make():
    two, weight, average, done = side(), torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda"), torch.cuda.Event()
    source = [numbered(k, 4096) for k in range(STEPS)]
    def body(k):
        x = source[k].cuda(non_blocking=True)
        weight.copy_(x.clone())
        done.record()
        y = torch.randn(64, 64, device="cuda") @ torch.randn(64, 64, device="cuda")
    def outside(k):
        two.wait_event(done)
        with torch.cuda.stream(two):
            average.copy_(weight)
        two.synchronize()
        return [average]
    body.outside = outside
    return body
""",
        10,
    ),
    "new_streams": (
        """
def make():
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        here, left = torch.cuda.current_stream(), []
        x = source[k].cuda(non_blocking=True)
        for _ in range(3):
            new = torch.cuda.Stream(priority=-1)
            new.wait_stream(here)
            with torch.cuda.stream(new):
                left.append(x.clone())
            here.wait_stream(new)
        return [one.clone() for one in left]
    return body
""",
        10,
    ),
    "gradient_hooks": (
        """
def make():
    net, two, buckets = mlp(), side(), []
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def sum_up(parameter):
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            buckets.append(parameter.grad.clone())
            parameter.grad.copy_(buckets[-1])
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(sum_up)
    def body(k):
        net(torch.randn(256, 64, device="cuda")).square().mean().backward()
        torch.cuda.current_stream().wait_stream(two)
        buckets.clear()
        optimizer.step()
        optimizer.zero_grad()
    return body
""",
        10,
    ),
    "optimizer_on_the_side": (
        """
def make():
    net, two = mlp(), side()
    optimizer = torch.optim.AdamW(net.parameters())
    def body(k):
        net(torch.randn(256, 64, device="cuda")).square().mean().backward()
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            optimizer.step()
        torch.cuda.current_stream().wait_stream(two)
        optimizer.zero_grad()
    return body
""",
        10,
    ),
    "generic_streams": (
        """
def make():
    two, event = torch.Stream("cuda"), torch.Event("cuda")
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        here = torch.accelerator.current_stream()
        x = source[k].cuda(non_blocking=True)
        y = x.clone()
        event.record(here)
        two.wait_event(event)
        torch.accelerator.set_stream(two)
        z = y.clone()
        torch.accelerator.set_stream(here)
        here.wait_stream(two)
        w = z.clone()
        torch.accelerator.synchronize()
        return [w, w.clone()]
    return body
""",
        10,
    ),
    "in_turns": (
        """
def make():
    two = side()
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        x = source[k].cuda(non_blocking=True)
        if k % 2:
            two.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(two):
                y = x.clone()
            torch.cuda.current_stream().wait_stream(two)
        else:
            y = x.clone().clone()
        return [y.clone()]
    return body
""",
        5,
    ),
    "leaves_its_program": (
        """
def make():
    one, two = side(), side()
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        here = torch.cuda.current_stream()
        x = source[k].cuda(non_blocking=True)
        y = x.clone()
        one.wait_stream(here)
        two.wait_stream(here)
        if k == 9:
            y[:8].copy_(x[8:16])
        with torch.cuda.stream(one):
            z = y.clone()
        with torch.cuda.stream(two):
            w = (y if k != 11 else x).clone()
        here.wait_stream(one)
        here.wait_stream(two)
        return [z.clone(), w.clone()]
    return body
""",
        7,
    ),
    "draws_on_both": (
        """
def make():
    two = side()
    def body(k):
        x = torch.randn(4096, device="cuda")
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            y = torch.nn.functional.dropout(x, 0.5)
            z = torch.randn(4096, device="cuda")
        torch.cuda.current_stream().wait_stream(two)
        w = torch.randn(4096, device="cuda") + y + z
        torch.cuda.current_stream().synchronize()
        return [torch.cuda.get_rng_state()]
    return body
""",
        5,
    ),
    "in_place_on_the_side": (
        """
def make():
    two = side()
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        x = torch.empty(1024, device="cuda")
        x.copy_(source[k], non_blocking=True)
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            x[:512].copy_(source[(k + 1) % STEPS][:512], non_blocking=True)
        torch.cuda.current_stream().wait_stream(two)
        y = x.clone()
        x[512:].copy_(y[:512])
        return [y, x]
    return body
""",
        10,
    ),
    "views": (
        """
def make():
    streams = [side() for _ in range(4)]
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        here = torch.cuda.current_stream()
        x = source[k].cuda(non_blocking=True)
        out = torch.empty(1024, device="cuda")
        for n, stream in enumerate(streams):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                out.view(4, 256)[n].copy_(x.view(4, 256)[3 - n])
        for stream in streams:
            here.wait_stream(stream)
        return [out.clone()]
    return body
""",
        10,
    ),
    "freed_elsewhere": (
        """
def make():
    two = side()
    source = [numbered(k, 1 << 15) for k in range(STEPS)]
    def body(k):
        here, left = torch.cuda.current_stream(), []
        for n in range(3):
            with torch.cuda.stream(two):
                x = source[(k + n) % STEPS].cuda(non_blocking=True)
            here.wait_stream(two)
            left.append(x.clone())
            two.wait_stream(here)
            del x
            with torch.cuda.stream(two):
                y = source[k].cuda(non_blocking=True)
            del y
        return left
    return body
""",
        10,
    ),
    "outer_stream_is_foreign": (
        """
def make():
    cudart = torch.cuda.cudart()
    library = ctypes.CDLL("libcudart.so.13")
    handle = ctypes.c_void_p()
    assert library.cudaStreamCreateWithFlags(ctypes.byref(handle), 1) == 0
    two = torch.cuda.ExternalStream(handle.value)
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        here = torch.cuda.current_stream()
        x = source[k].cuda(non_blocking=True)
        y = x.clone()
        two.wait_stream(here)
        with torch.cuda.stream(two):
            z = y.clone()
        here.wait_stream(two)
        return [z.clone()]
    return body
""",
        10,
    ),
    "fails": (
        """
def make():
    two = side()
    source = [numbered(k) for k in range(STEPS)]
    kept = torch.zeros(1024, device="cuda")
    def body(k):
        x = source[k].cuda(non_blocking=True)
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            y = x.clone()
            kept.copy_(y)
            if k in (6, 9):
                raise ZeroDivisionError
            z = y.clone()
        torch.cuda.current_stream().wait_stream(two)
        return [z.clone()]
    body.outside = lambda k: [kept]
    return body
""",
        8,
    ),
    "backward_on_the_side": (
        """
def make():
    net, two = mlp(), side()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    def body(k):
        loss = net(torch.randn(256, 64, device="cuda")).square().mean()
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            loss.backward()
        torch.cuda.current_stream().wait_stream(two)
        optimizer.step()
        optimizer.zero_grad()
    return body
""",
        10,
    ),
    "to_the_host": (
        """
def make():
    two, done = side(), torch.cuda.Event()
    source = [numbered(k) for k in range(STEPS)]
    host = torch.empty(1024).pin_memory()
    def body(k):
        x = source[k].cuda(non_blocking=True)
        y = x.clone()
        two.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(two):
            host.copy_(y, non_blocking=True)
            done.record()
        done.synchronize()
        return [torch.from_numpy(host.numpy().copy())]
    return body
""",
        10,
    ),
    "two_devices": (
        """
def make():
    side1 = torch.cuda.Stream(device=1)
    source = [numbered(k) for k in range(STEPS)]
    def body(k):
        x = source[k].to("cuda:0", non_blocking=True)
        y = x.clone()
        z = y.to("cuda:1")
        w = z.clone()
        side1.wait_stream(torch.cuda.current_stream(1))
        with torch.cuda.stream(side1):
            v = y.to("cuda:1", non_blocking=True)
            u = w.clone()
        torch.cuda.current_stream(1).wait_stream(side1)
        t = u.clone()
        return [t.to("cuda:0"), v]
    return body
""",
        10,
    ),
    "graph": (
        """
def make():
    two = side()
    source = [numbered(k) for k in range(STEPS)]
    given, made = torch.zeros(1024, device="cuda"), torch.zeros(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made.copy_(given)
    def body(k):
        given.copy_(source[k], non_blocking=True)
        graph.replay()
        return [made.clone()]
    return body
""",
        0,
    ),
}

// The rare half of the agent: finds libcuda, hooks its exports with the C half, and tells the session.
//
//   agent → session   {type: 'exports', names, path}          the driver is here; answered by
//   session → agent   {type: 'table', control, directory, …}  and the packed functions, or {type: 'table', error}
//   agent → session   {type: 'hold', addresses}               where the program runs: hold its threads; answered by
//   session → agent   {type: 'threads', threads, held}        until all that are not Frida's are held; each by
//   agent → session   {type: 'threads', threads}              those that are the program's
//   agent → session   {type: 'limit', message}                what this recording cannot do
//   agent → session   {type: 'library', name, path, count, failed}   a library above the driver is hooked
//   agent → session   {type: 'hooked', count, failed, aliases, addresses}, or {type: 'failed', message}

const LIBC = [
  'pthread_getspecific', 'pthread_setspecific', 'pthread_key_create', 'pthread_key_delete', 'gettid', 'open', 'close', 'read',
  'fallocate', 'ftruncate', '__errno_location', 'getrlimit', 'strcpy', 'strcat', 'strcmp', 'memcmp', 'mmap', 'munmap', 'madvise', 'clock_gettime', 'nanosleep', 'kill', 'symlink', 'unlink',
  'pthread_self', 'pthread_getattr_np', 'pthread_attr_getstack', 'pthread_attr_destroy',
  'getpid', 'process_vm_readv', 'dlopen',
];

let source = null;   // of the C half
let agent = null;    // the C half
let residentSource = null; // of what stays in the process, see resident.c
let resident = null; // that, where this recording is the first
let hooks = null;    // its memory
let state = null;    // its memory
let functions = null; // the packed table
let driverPath = null;
let late = false;     // the program was running before
let beginning = false; // the session waits for us
let hooked = false;   // from then on this script is to stay: it tells by the ring what there is to tell, see `note`

let libraries = null; // what to hook of them, once the driver is hooked
const waiting = [];   // libraries that came before the driver
const memory = [];    // theirs, as long as the agent
const reached = new Set();  // addresses of their functions that are hooked

let control = null;  // path of the file that the recording is steered by
let nvtx = null;     // what takes the place of NVTX's functions

const PR_SET_PDEATHSIG = 1;
const HOOKS_NAME = 'zluda-hooks';
const HOOKS_BYTES = 1 << 18;
const HOOKS_ABOUT = 64;
const HOOKS_THIN = 8;
const CALL_BYTES = 1024;       // of spec.py
const MOVED_BYTES = 128;       // of a function's first instructions, in another place
const JUMP_BYTES = 5;
const REGISTERS = 6;           // that integer arguments lie in
const NEAR = 1 << 30;          // within which a jump of five bytes reaches, a library's own size included
const MADE_AT = 16;           // in what the C half calls `struct function`

// The program was started so that it dies with the session while it is held (hold.py). From its first
// instruction on it is to outlive it: taken back by the main thread, whose setting it is.
function outliveSession() {
  const start = Module.findGlobalExportByName('__libc_start_main');
  const prctl = Module.findGlobalExportByName('prctl');
  if (start === null || prctl === null)
    return;
  const set = new NativeFunction(prctl, 'int', ['int', 'ulong', 'ulong', 'ulong', 'ulong']);
  Interceptor.attach(start, { onEnter() { set(PR_SET_PDEATHSIG, 0, 0, 0, 0); } });
}

// What the program tells by NVTX, see nvtx.c: its functions are there when NVTX asks for them, and speak to the agent when
// that is there.
function listenToNvtx(cSource) {
  nvtx = { sink: Memory.alloc(Process.pointerSize), next: Memory.alloc(8) };
  nvtx.next.writeU64(1);
  nvtx.module = new CModule(cSource, { sink: nvtx.sink, next_range: nvtx.next });
}

function libc() {
  const symbols = {};
  for (const name of LIBC) {
    const address = Module.findGlobalExportByName(name);
    if (address === null)
      throw new Error(`this C library has no ${name}`);
    symbols[name] = address;
  }
  for (const name of ['memcpy', 'memset'])
    symbols[`libc_${name}`] = Module.getGlobalExportByName(name);
  return symbols;
}

// Whether a kernel's name is one that was asked for; of each kernel once, see choice.c.
function kernelMatcher(pattern) {
  const expression = pattern === null ? /^/ : new RegExp(pattern[0], pattern[1]);
  return new NativeCallback(name => expression.test(name.readUtf8String()) ? 1 : 0, 'int', ['pointer']);
}

function startAgent(table) {
  state = Memory.alloc(table.stateBytes);
  const kernel_matches = kernelMatcher(table.kernels);
  const first = memoriesNamed(FOLLOWING_NAME)[0].add(FIRST_AT);
  agent = new CModule(source, Object.assign({ state, kernel_matches, first }, libc()));
  agent.kernel_matches = kernel_matches;  // as long as the module
  agent.choice = Memory.alloc(table.choice.length);
  agent.choice.writeByteArray(table.choice);
  const openControl = new NativeFunction(agent.open_control, 'pointer', ['pointer']);
  control = table.control;
  const map = openControl(Memory.allocUtf8String(control));
  if (map.isNull())
    throw new Error(`cannot map ${control}`);
  const start = new NativeFunction(agent.start, 'int', ['pointer', 'pointer', 'pointer', 'int', 'int', 'uint64']);
  const failed = start(map, Memory.allocUtf8String(table.directory), agent.choice, table.outputs,
    late ? 1 : 0, uint64(table.progressNs));
  if (failed !== 0)
    throw new Error(`the agent could not start (step ${failed})`);
  tryFloats();
  if (nvtx !== null)
    nvtx.sink.writePointer(agent.range_told);
}

// Whether floats passed by value can be told, see vector_register in hooks.c.
function tryFloats() {
  const listener = Interceptor.attach(agent.two_floats, { onEnter: agent.enter_two_floats });
  Interceptor.flush();
  const options = { traps: 'all' };  // also where Frida's own thread is here, as when the driver is loaded already
  new NativeFunction(agent.two_floats, 'int', ['double', 'double'], options)(1.5, -3.25);
  listener.detach();
  if (new NativeFunction(agent.finds_floats, 'int', [])() === 0)
    send({ type: 'limit', message: 'Frida keeps vector registers elsewhere here; floats passed by value are not recorded' });
}

function driverExports(module) {
  const exports = new Map();
  for (const e of module.enumerateExports())
    if (e.type === 'function' && /^cu[A-Z]/.test(e.name))
      exports.set(e.name, e.address);
  return exports;
}

// A thread of the program that stands in the first instructions of a function while a jump is put there would go on inside
// the jump. The session holds them, until it is told what is hooked; it cannot know which threads are Frida's.
function holdThreads(addresses) {
  send({ type: 'hold', addresses });
  for (;;) {
    let answer = null;
    recv('threads', message => { answer = message; }).wait();
    if (answer.held)
      return;
    send({ type: 'threads', threads: answer.threads.filter(thread => !Cloak.hasThread(thread)) });
  }
}

// Put the hooks in that stay, see resident.c; what is told of them lies behind `enter`. Names that share an address are one
// function: the first of them stands for all. Those that only ask (`quiet`) are left alone. `words`: see `thin_words` of spec.py.
function installHooks(exports, names, quiet, words) {
  if (late)
    holdThreads(names.filter(name => exports.has(name)).map(name => exports.get(name).toString()));
  hooks = memoryNamed(HOOKS_NAME, HOOKS_BYTES);
  resident = new CModule(residentSource, { hooks });
  const hooked = new Map();
  const about = { names: [], addresses: [], failed: [], aliases: [], leftOut: [] };
  const callbacks = { onEnter: resident.resident_enter, onLeave: resident.resident_leave };
  const thin = [];
  for (const name of names) {
    const address = exports.get(name);
    if (address === undefined)
      continue;
    const key = address.toString();
    if (hooked.has(key)) {
      about.aliases.push([name, hooked.get(key)]);
      continue;
    }
    if (quiet.has(name)) {
      about.leftOut.push([name, key]);
      continue;
    }
    try {
      const number = ptr(about.names.length);
      if (name in words && bodyOf(address).equals(address))
        thin.push([address, number, words[name]]);
      else
        Interceptor.attach(address, callbacks, number);
      hooked.set(key, name);
      about.names.push(name);
      about.addresses.push(key);
    } catch (error) {
      about.failed.push([name, error.message]);
    }
  }
  for (const [address, number] of hookThin(thin, hooks.add(HOOKS_THIN), exports.values().next().value))
    try {
      Interceptor.attach(address, callbacks, number);
    } catch (error) {
      about.failed.push([about.names[number.toInt32()], error.message]);
    }
  Interceptor.flush();
  about.leftOut = about.leftOut.filter(([_, key]) => !hooked.has(key));
  hooks.add(HOOKS_ABOUT).writeUtf8String(JSON.stringify(about));
  return about;
}

// The hooks of an earlier recording of this process, or of the one that it was forked from; null where there are none.
function findHooks() {
  for (const memory of memoriesNamed(HOOKS_NAME)) {
    const text = memory.add(HOOKS_ABOUT).readUtf8String();
    if (text !== '') {  // else they were taken out before a recording had begun
      hooks = memory;
      return JSON.parse(text);
    }
  }
  return null;
}

// nvJitLink exports its functions under names with the version.
function plainName(name) {
  const versioned = /^__(nvJitLink\w+?)_\d+_\d+$/.exec(name);
  return versioned === null ? name : versioned[1];
}

// Where a function's code is: Frida hooks what a first instruction jumps to. The versions of a name share one body, and two
// hooks there would be entered together.
function bodyOf(address) {
  for (let hops = 0; hops !== 8 && !reached.has(address.toString()); hops++) {
    if (address.readU8() === JUMP)
      address = address.add(5).add(address.add(1).readS32());
    else if (address.readU8() === JUMP_SHORT)
      address = address.add(2).add(address.add(1).readS8());
    else if (address.readU16() === JUMP_INDIRECT)
      address = address.add(6).add(address.add(2).readS32()).readPointer();
    else
      break;
  }
  return address;
}

// The functions of one library's file. Each file has its own copy of what the C half reads: two versions of one
// library in a process have functions of their own to ask what they made.
function hookLibrary(library, module) {
  const exports = module.enumerateExports().filter(e => e.type === 'function' && plainName(e.name) in library.functions);
  const addresses = new Map(exports.map(e => [plainName(e.name), e.address]));
  const copies = Memory.alloc(Math.max(exports.length, 1) * libraries.functionBytes);
  memory.push(copies);
  const made = new Map();
  for (const [name, pairs] of Object.entries(library.made)) {
    const block = Memory.alloc(8 + 16 * pairs.length);
    block.writeU64(pairs.length);
    pairs.flat().forEach((one, index) => block.add(8 + 8 * index).writePointer(addresses.get(one) ?? NULL));
    made.set(name, block);
    memory.push(block);
  }
  const failed = [], thin = [], whole = [];
  const bodies = exports.map(e => bodyOf(e.address).toString());
  exports.forEach((e, index) => {
    const name = plainName(e.name);
    if (reached.has(bodies[index]))
      return;
    const copy = copies.add(index * libraries.functionBytes);
    Memory.copy(copy, functions.add(library.functions[name] * libraries.functionBytes), libraries.functionBytes);
    copy.add(MADE_AT).writePointer(made.get(name) ?? NULL);
    reached.add(bodies[index]);
    (name in library.thin ? thin : whole).push([e.address, copy, library.thin[name], e.name]);
  });
  for (const [address, copy, _, name] of whole.concat(hookThin(thin, thinHandlers(), module.base)))
    try {
      Interceptor.attach(address, { onEnter: agent.enter_library, onLeave: agent.leave_library }, copy);
    } catch (error) {
      failed.push([name, error.message]);
    }
  const count = whole.length + thin.length - failed.length;
  Interceptor.flush();
  note({ library: { name: library.name, path: module.path, hooks: count } });
  failed.forEach(([name, message]) => note({ gap: [name, `could not be hooked: ${message}`] }));
}

// What stands in the place of a function whose arguments all are words: `handlers[0]` (enter_thin of hooks.c), the function
// itself, `handlers[1]` (leave_thin), each of which may be NULL. `words` of the arguments lie on the stack and are put there
// again; above them those in registers, and room for what the agent keeps of a call, whose first word is 0 at the start.
function thinCode(handlers, about, original, words) {
  const little = (value, bytes) => [...new Uint8Array(new BigUint64Array([BigInt(value.toString())]).buffer)].slice(0, bytes);
  const registers = 8 * (words + words % 2), call = registers + 8 * REGISTERS;
  const operands = [[0x48, 0xbc], [0x48, 0xb4], [0x48, 0x94], [0x48, 0x8c], [0x4c, 0x84], [0x4c, 0x8c]];
  const move = opcode => operands.flatMap(([prefix, operand], index) =>
    [prefix, opcode, operand, 0x24, ...little(registers + 8 * index, 4)]);
  const invoke = index => [
    0x48, 0xb8, ...little(handlers.add(8 * index), 8), 0x48, 0x8b, 0x00, // mov rax, …; mov rax, [rax]
    0x48, 0x85, 0xc0, 0x74, 2, 0xff, 0xd0,                               // test rax, rax; jz over; call rax
  ];
  return [
    0x55, 0x48, 0x89, 0xe5,                                              // push rbp; mov rbp, rsp
    0x48, 0x81, 0xec, ...little(call + CALL_BYTES, 4),                   // sub rsp, …
    ...move(0x89),                                                       // mov [rsp + …], rdi; …
    0x48, 0xc7, 0x84, 0x24, ...little(call, 4), 0, 0, 0, 0,              // mov qword [rsp + call], 0
    0x48, 0x8d, 0xbc, 0x24, ...little(registers, 4),                     // lea rdi, [rsp + registers]
    0x48, 0xbe, ...little(about, 8),                                     // mov rsi, about
    0x48, 0x8d, 0x94, 0x24, ...little(call, 4),                          // lea rdx, [rsp + call]
    0x48, 0x8d, 0x4d, 8,                                                 // lea rcx, [rbp + 8]
    ...invoke(0),
    ...Array.from({ length: words }, (_, index) => [
      0x48, 0x8b, 0x85, ...little(16 + 8 * index, 4),                    // mov rax, [rbp + …]
      0x48, 0x89, 0x84, 0x24, ...little(8 * index, 4),                   // mov [rsp + …], rax
    ]).flat(),
    ...move(0x8b),                                                       // mov rdi, [rsp + …]; …
    0x48, 0xb8, ...little(original, 8), 0xff, 0x10,                      // mov rax, original; call [rax]
    0x48, 0x89, 0x84, 0x24, ...little(registers, 4), 0x48, 0x89, 0xc7,   // mov [rsp + registers], rax; mov rdi, rax
    0x48, 0x8d, 0xb4, 0x24, ...little(call, 4),                          // lea rsi, [rsp + call]
    ...invoke(1),
    0x48, 0x8b, 0x84, 0x24, ...little(registers, 4), 0xc9, 0xc3,         // mov rax, [rsp + registers]; leave; ret
  ];
}

function thinBytes(words) {
  return (thinCode(NULL, NULL, NULL, words).length + 15) & ~15;
}

// In a forked child a function is called through its parent's code already, which does nothing there: ours takes its place.
// No other thread is there. False where a function does not begin with a jump to such code.
function takeOver(address, handlers, about, words) {
  const code = bodyOf(address), start = thinCode(NULL, NULL, NULL, words).slice(0, 11);
  const mark = thinCode(NULL, NULL, ptr('0x5a5a5a5a5a5a5a5a'), words);
  if (code.equals(address) || start.some((byte, index) => code.add(index).readU8() !== byte))
    return false;
  const original = code.add(mark.findIndex((_, at) => mark.slice(at, at + 8).every(byte => byte === 0x5a))).readPointer();
  const ours = thinCode(handlers, about, original, words);
  Memory.patchCode(code, ours.length, to => { to.writeByteArray(ours); });
  return true;
}

// Put a jump to `code` where a function begins, and the instructions that stood there to `moved`. (Frida's own replaceFast
// wants sixteen bytes for that, which short functions lack, or jump into.) False where they cannot be moved.
function divert(address, code, moved) {
  let size = 0;
  Memory.patchCode(moved, MOVED_BYTES, to => {
    const writer = new X86Writer(to, { pc: moved });
    const relocator = new X86Relocator(address, writer);
    while (size < JUMP_BYTES) {
      const read = relocator.readOne();
      if (read === 0)
        break;
      size = read;
    }
    if (size >= JUMP_BYTES) {
      relocator.writeAll();
      if (!relocator.eoi)
        writer.putJmpAddress(address.add(size));
      writer.flush();
    }
    relocator.dispose();
    writer.dispose();
  });
  if (size < JUMP_BYTES)
    return false;
  const distance = code.sub(address.add(JUMP_BYTES)).toInt32();
  Memory.patchCode(address, JUMP_BYTES, to => { to.writeU8(JUMP).add(1).writeS32(distance); });
  return true;
}

// Memory within a jump's reach of `near` for the code of functions (as hookThin has them), for their moved instructions, and for
// the addresses that it reads; null where there is none. It is never freed: a thread may be inside however long.
function roomForCode(near, triples) {
  const pages = bytes => Math.ceil(bytes / Process.pageSize) * Process.pageSize;
  const mmap = systemFunction('mmap', 'pointer', ['pointer', 'size_t', 'int', 'int', 'int', 'int64']);
  const munmap = systemFunction('munmap', 'int', ['pointer', 'size_t']);
  const codeBytes = pages(triples.reduce((sum, [_address, _about, words]) => sum + thinBytes(words), 0));
  const movedBytes = pages(triples.length * MOVED_BYTES);
  const size = codeBytes + movedBytes + pages(triples.length * Process.pointerSize);
  for (let distance = NEAR / 16; triples.length !== 0 && distance < NEAR; distance += NEAR / 16)
    for (const wish of [near.sub(distance), near.add(distance)]) {
      const found = mmap(wish.and(ptr(Process.pageSize - 1).not()), size, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, -1, 0);
      if (found.equals(ptr(-1)))
        return null;
      if (found.compare(near.sub(NEAR)) > 0 && found.add(size).compare(near.add(NEAR)) < 0)
        return { code: found, moved: found.add(codeBytes), originals: found.add(codeBytes + movedBytes) };
      munmap(found, size);
    }
  return null;
}

function thinHandlers() {
  const handlers = Memory.alloc(2 * Process.pointerSize);
  handlers.writePointer(agent.enter_thin).add(Process.pointerSize).writePointer(agent.leave_thin);
  memory.push(handlers);
  return handlers;
}

// Have functions be called through such code: triples of an address, what its handler is told, and how many of its arguments
// lie on the stack. Returns those for which that cannot be.
function hookThin(triples, handlers, near) {
  const room = roomForCode(near, triples);
  if (room === null)
    return triples;
  const { code, moved, originals } = room;
  const starts = [];
  let end = 0;
  for (const [_address, _about, words] of triples) {
    starts.push(code.add(end));
    end += thinBytes(words);
  }
  const place = index => originals.add(index * Process.pointerSize);
  Memory.patchCode(code, end, to => triples.forEach(([_, about, words], index) =>
    to.add(starts[index].sub(code)).writeByteArray(thinCode(handlers, about, place(index), words))));
  return triples.filter(([address, about, words], index) => {
    const instructions = moved.add(index * MOVED_BYTES);
    place(index).writePointer(instructions);
    return !takeOver(address, handlers, about, words) && !divert(bodyOf(address), starts[index], instructions);
  });
}

function note(message) {
  new NativeFunction(agent.note, 'void', ['pointer'])(Memory.allocUtf8String(JSON.stringify(message)));
}

function foundLibrary(module) {
  if (hooked && new NativeFunction(agent.is_recording, 'int', [])() === 0)
    return;
  if (libraries === null) {
    waiting.push(module);
    return;
  }
  const library = libraries.list.find(one => new RegExp(`^${one.file}(-[0-9a-f]+)?\\.so`).test(module.name));
  if (library !== undefined)
    hookLibrary(library, module);
}

function hook(module) {
  const exports = driverExports(module);
  let table = null;
  send({ type: 'exports', names: Array.from(exports.keys()), path: module.path });
  recv('table', (message, data) => {
    table = message;
    if (data !== null) {
      functions = Memory.alloc(data.byteLength);
      functions.writeByteArray(data);
    }
  }).wait();
  if (table.error !== undefined)
    return;
  startAgent(table);
  driverPath = Memory.allocUtf8String(module.path);
  new NativeFunction(agent.set_driver, 'void', ['pointer'])(driverPath);
  const setEntry = new NativeFunction(agent.set_entry, 'void', ['pointer', 'pointer']);
  for (const [name, address] of exports)
    setEntry(Memory.allocUtf8String(name), address);
  const places = new Map(table.names.map((name, index) => [name, functions.add(index * table.functionBytes)]));
  const setFunction = new NativeFunction(agent.set_function, 'void', ['pointer', 'pointer']);
  for (const name of table.nodes)
    setFunction(Memory.allocUtf8String(name), places.get(name));
  const quiet = new Set(table.leftOut);
  const about = findHooks() ?? installHooks(exports, table.names, quiet, table.thin);
  agent.hooked = Memory.alloc(8 * about.names.length);
  about.names.forEach((name, index) => agent.hooked.add(8 * index).writePointer(quiet.has(name) ? NULL : places.get(name) ?? NULL));
  new NativeFunction(agent.set_hooked, 'void', ['pointer'])(agent.hooked);
  hooks.add(HOOKS_THIN).writePointer(agent.enter_thin_entry);
  hooks.add(HOOKS_THIN + Process.pointerSize).writePointer(agent.leave_thin);
  hooks.writePointer(agent.enter);
  memoriesNamed(FOLLOWING_NAME)[0].add(FIRST_AT).writePointer(hooks);
  hooked = true;
  send({
    type: 'hooked', count: about.names.length, failed: about.failed, aliases: about.aliases, alone: !beginning,
    addresses: about.addresses.concat(about.leftOut.map(([_, key]) => key)), leftOut: about.leftOut.map(([name, _]) => name),
  });
  if (!beginning)
    new NativeFunction(agent.wait_to_stay, 'void', [])();
  libraries = { list: table.libraries, functionBytes: table.functionBytes };
  waiting.splice(0).forEach(foundLibrary);
}

rpc.exports = {
  // Returns whether the driver was there, and is hooked.
  begin(sources, options) {
    beginning = true;
    source = sources.agent;
    residentSource = sources.resident;
    late = options.late;
    if (options.outlives)
      outliveSession();
    if (options.nvtx !== null)
      listenToNvtx(sources.nvtx);
    const getpid = new NativeFunction(Module.getGlobalExportByName('getpid'), 'int', []), process = getpid();
    Process.attachModuleObserver({
      onAdded(module) {
        if (getpid() !== process)
          return;  // a forked child, whose own agent sees it too; nobody would answer this one
        if (module.name === options.nvtx)
          module.getExportByName('zluda_nvtx').writePointer(nvtx.module.initialize);
        if (!/^lib(cu|nv|nccl)/.test(module.name))
          return;
        try {
          if (functions === null && /^libcuda\.so/.test(module.name))
            hook(module);
          else
            foundLibrary(module);
        } catch (error) {
          if (hooked)
            note({ gap: [module.name, `could not be hooked: ${error.message}`] });
          else
            send({ type: 'failed', message: `${module.name}: ${error.message}` });
        }
      },
    });
    beginning = false;
    keepOpen(memoriesNamed(DESCRIPTORS_NAME)[0]);  // this script's, too
    return hooked;
  },
  dispose() {
    if (nvtx !== null)
      nvtx.sink.writePointer(NULL);
    if (agent === null)
      return;
    if (hooks !== null)
      [0, 1, 2].forEach(index => hooks.add(index * Process.pointerSize).writePointer(NULL));
    if (resident !== null)
      hooks.add(HOOKS_ABOUT).writeUtf8String('');
    new NativeFunction(agent.stop, 'void', [])();
  },
};

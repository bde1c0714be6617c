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

'use strict';

const LIBC = [
  'pthread_getspecific', 'pthread_setspecific', 'pthread_key_create', 'pthread_key_delete', 'gettid', 'open', 'close', 'read',
  'fallocate', 'ftruncate', '__errno_location', 'getrlimit', 'strcpy', 'strcat', 'strcmp', 'memcmp', 'mmap', 'munmap', 'madvise', 'clock_gettime', 'nanosleep', 'kill',
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

let libraries = null; // what to hook of them, once the driver is hooked
const waiting = [];   // libraries that came before the driver
const memory = [];    // theirs, as long as the agent
const reached = new Set();  // addresses of their functions that are hooked

let keeper = null;   // of Frida's file descriptors
let forks = null;    // one at a time
let execs = null;    // who becomes another program
let control = null;  // path of the file that the recording is steered by
let exits = null;    // of the main thread
let nvtx = null;     // what takes the place of NVTX's functions

const PR_SET_PDEATHSIG = 1;
const MADV_WIPEONFORK = 18;
const ENDBR64 = 0xfa1e0ff3;
const JUMP = 0xe9;            // jmp rel32
const JUMP_SHORT = 0xeb;      // jmp rel8
const JUMP_INDIRECT = 0x25ff; // jmp [rip + rel32]
const MAX_DESCRIPTOR = 4096;
const MAX_KEPT = 64;
const DESCRIPTORS_NAME = 'zluda-descriptors';
const HOOKS_NAME = 'zluda-hooks';
const HOOKS_BYTES = 1 << 18;
const HOOKS_ABOUT = 64;
const NAME_BYTES = 64;
const PROT_NONE = 0;
const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;
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

// Where a function's first instruction jumps to, once Frida has put a jump there, and how to have it jump elsewhere.
// The jump comes after `endbr64` where the C library is built for indirect branch tracking.
function jumpAt(address) {
  const at = address.readU32() === ENDBR64 ? address.add(4) : address;
  if (at.readU8() === JUMP) {
    const next = at.add(5);
    return {
      target: next.add(at.add(1).readS32()),
      redirect(island) { Memory.patchCode(at, 5, code => { code.add(1).writeS32(island.sub(next).toInt32()); }); },
    };
  }
  if (at.readU16() === JUMP_INDIRECT) {
    const pointer = at.add(6).add(at.add(2).readS32());
    return {
      target: pointer.readPointer(),
      redirect(island) { Memory.patchCode(pointer, 8, code => { code.writePointer(island); }); },
    };
  }
  return null;
}

// Has a function that Frida hooks go first to another of ours, which gets where Frida's jump leads as `hooked`. What
// `compile` returns lives as long as the script.
function comeBefore(name, what, compile) {
  const address = Module.getGlobalExportByName(name);
  const jump = jumpAt(address);
  if (jump === null) {
    const start = Array.from(new Uint8Array(address.readByteArray(16)), byte => byte.toString(16).padStart(2, '0')).join('');
    send({ type: 'limit', message: `Frida hooks ${name} in another way here (${start}); ${what}` });
    return null;
  }
  const module = compile(jump.target);
  const island = Memory.alloc(Process.pageSize, { near: address, maxDistance: 0x7fff0000 });  // where a near jump reaches it
  module.island = island;
  Memory.patchCode(island, 16, code => {
    const writer = new X86Writer(code, { pc: island });
    writer.putJmpAddress(module.first);
    writer.flush();
  });
  jump.redirect(island);
  return module;
}

// Threads fork one after the other, see forks.c.
function forkAlone(cSource) {
  forks = comeBefore('fork', 'threads that fork together may end the program', hooked_fork => {
    const page = Process.pageSize;
    const forking = Memory.alloc(page);
    const madvise = new NativeFunction(Module.getGlobalExportByName('madvise'), 'int', ['pointer', 'size_t', 'int']);
    madvise(forking, page, MADV_WIPEONFORK);
    const module = new CModule(cSource, { forking, nanosleep: Module.getGlobalExportByName('nanosleep'), hooked_fork });
    return { module, forking, first: module.fork_alone };
  });
}

// Who becomes another program, see execs.c.
function tellExecs(cSource) {
  execs = comeBefore('execve', 'recording ends where the program starts another by posix_spawn', hooked_exec => {
    const becoming = Memory.alloc(4);
    const module = new CModule(cSource, { becoming, getpid: Module.getGlobalExportByName('getpid'), hooked_exec });
    return { module, becoming, first: module.told_exec };
  });
}

// Whether scripts are disposed of for a child that is to become another program, in our memory until it does: the file
// that steers this recording is in its map.
function isForChild() {
  const pid = execs === null ? 0 : execs.becoming.readS32();
  if (pid === 0 || pid === Process.id)
    return false;
  try {
    return File.readAllText(`/proc/${pid}/maps`).includes(control);
  } catch (error) {
    return false;  // it is another program, or gone
  }
}

// Frida's descriptors outlive a close_range of the program, see descriptors.c. An earlier recording of the process, or of the
// one that it was forked from, may have seen to that: then its list is brought up to date. Whether it is the first.
function keepDescriptors(cSource) {
  const closeRange = Module.findGlobalExportByName('close_range');
  if (closeRange === null)
    return true;  // older than glibc 2.34
  const kept = [];
  for (let descriptor = 0; descriptor !== MAX_DESCRIPTOR && kept.length !== MAX_KEPT; descriptor++)
    if (Cloak.hasFileDescriptor(descriptor))
      kept.push(descriptor);
  const memory = memoryNamed(DESCRIPTORS_NAME, Process.pageSize);
  const write = list => [kept.length, ...kept].forEach((word, index) => list.add(4 * index).writeU32(word));
  write(memory);
  const module = new CModule(`#define MAX_KEPT ${MAX_KEPT}\n${cSource}`, { kept: memory, close_range: closeRange });
  try {
    for (const name of ['close_range', 'closefrom']) {
      const address = Module.findGlobalExportByName(name);
      if (address !== null)
        Interceptor.replace(address, module[`${name}_but_kept`]);
    }
    Interceptor.flush();
    keeper = module;
  } catch (error) {
    if (!/already replaced/.test(error.message))
      throw error;
    memoriesNamed(DESCRIPTORS_NAME).forEach(write);
    return false;
  }
  return true;
}

// Memory that a later agent finds by a name, and of which a forked child has a copy: it begins with the name, and lies by
// itself between pages without access. (A file's name would need a file, whose size the program's limits may forbid.)
function memoryNamed(name, size) {
  const page = Process.pageSize;
  const find = (symbol, result, types) => new NativeFunction(Module.getGlobalExportByName(symbol), result, types);
  const around = find('mmap', 'pointer', ['pointer', 'size_t', 'int', 'int', 'int', 'int64'])(
    NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0);
  const memory = around.add(page);
  if (around.equals(ptr(-1)) || find('mprotect', 'int', ['pointer', 'size_t', 'int'])(memory, size, PROT_READ_WRITE) !== 0)
    throw new Error('no memory');
  memory.writeUtf8String(name);
  return memory.add(NAME_BYTES);
}

function memoriesNamed(name) {
  return Process.enumerateRanges('rw-').filter(({ base, file }) => file === undefined && isNamed(base, name))
    .map(({ base }) => base.add(NAME_BYTES));
}

function isNamed(base, name) {
  for (let index = 0; index <= name.length; index++)
    if (base.add(index).readU8() !== (index === name.length ? 0 : name.charCodeAt(index)))
      return false;
  return true;
}

// A process ends when its last thread does, but Frida's threads do not: a main thread that would leave the others by
// `pthread_exit` waits for them instead, see exits.c. Frida, too, cannot end a process without a main thread.
function stayToTheEnd(cSource) {
  const leave = Module.findGlobalExportByName('pthread_exit');
  if (leave === null)
    return;
  const is_fridas = new NativeCallback(thread => Cloak.hasThread(thread) ? 1 : 0, 'int', ['int']);
  const symbols = { is_fridas };
  for (const name of ['gettid', 'getpid', 'nanosleep', 'opendir', 'readdir', 'closedir', 'exit'])
    symbols[name] = Module.getGlobalExportByName(name);
  exits = new CModule(cSource, symbols);
  exits.is_fridas = is_fridas;  // as long as the module
  Interceptor.attach(leave, { onEnter: exits.enter_exit });
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
  agent = new CModule(source, Object.assign({ state, kernel_matches }, libc()));
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
// function: the first of them stands for all. Those that only ask (`quiet`) are left alone.
function installHooks(exports, names, quiet) {
  if (late)
    holdThreads(names.filter(name => exports.has(name)).map(name => exports.get(name).toString()));
  hooks = memoryNamed(HOOKS_NAME, HOOKS_BYTES);
  resident = new CModule(residentSource, { hooks });
  const hooked = new Map();
  const about = { names: [], addresses: [], failed: [], aliases: [], leftOut: [] };
  const callbacks = { onEnter: resident.resident_enter, onLeave: resident.resident_leave };
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
      Interceptor.attach(address, callbacks, ptr(about.names.length));
      hooked.set(key, name);
      about.names.push(name);
      about.addresses.push(key);
    } catch (error) {
      about.failed.push([name, error.message]);
    }
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
  const failed = [];
  let count = 0;
  const bodies = exports.map(e => bodyOf(e.address).toString());
  exports.forEach((e, index) => {
    const name = plainName(e.name);
    if (reached.has(bodies[index]))
      return;
    const copy = copies.add(index * libraries.functionBytes);
    Memory.copy(copy, functions.add(library.functions[name] * libraries.functionBytes), libraries.functionBytes);
    copy.add(MADE_AT).writePointer(made.get(name) ?? NULL);
    try {
      Interceptor.attach(e.address, { onEnter: agent.enter_library, onLeave: agent.leave_library }, copy);
      reached.add(bodies[index]);
      count++;
    } catch (error) {
      failed.push([e.name, error.message]);
    }
  });
  Interceptor.flush();
  send({ type: 'library', name: library.name, path: module.path, count, failed });
}

function foundLibrary(module) {
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
  const about = findHooks() ?? installHooks(exports, table.names, quiet);
  agent.hooked = Memory.alloc(8 * about.names.length);
  about.names.forEach((name, index) => agent.hooked.add(8 * index).writePointer(quiet.has(name) ? NULL : places.get(name) ?? NULL));
  new NativeFunction(agent.set_hooked, 'void', ['pointer'])(agent.hooked);
  hooks.writePointer(agent.enter);
  send({
    type: 'hooked', count: about.names.length, failed: about.failed, aliases: about.aliases,
    addresses: about.addresses.concat(about.leftOut.map(([_, key]) => key)), leftOut: about.leftOut.map(([name, _]) => name),
  });
  libraries = { list: table.libraries, functionBytes: table.functionBytes };
  waiting.splice(0).forEach(foundLibrary);
}

rpc.exports = {
  begin(sources, options) {
    source = sources.agent;
    residentSource = sources.resident;
    late = options.late;
    const first = keepDescriptors(sources.descriptors);
    if (first && options.follow) {
      forkAlone(sources.forks);
      tellExecs(sources.execs);
    }
    if (!late)
      outliveSession();
    if (first)
      stayToTheEnd(sources.exits);
    if (options.nvtx !== null)
      listenToNvtx(sources.nvtx);
    Process.attachModuleObserver({
      onAdded(module) {
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
          send({ type: 'failed', message: `${module.name}: ${error.message}` });
        }
      },
    });
  },
  dispose() {
    if (isForChild())
      return;
    if (nvtx !== null)
      nvtx.sink.writePointer(NULL);
    if (agent === null)
      return;
    if (hooks !== null)
      hooks.writePointer(NULL);
    if (resident !== null)
      hooks.add(HOOKS_ABOUT).writeUtf8String('');
    new NativeFunction(agent.stop, 'void', [])();
  },
};

// What comes into a process with a session and stays for good, in a script of its own: Frida disposes of the others' memory
// in a forked child, on the stack of which `fork_alone` is, and at the end of a recording. Each session brings an agent of
// Frida's, with hooks of its own over the earlier one's; only a forked child goes on with its parent's.

const MADV_WIPEONFORK = 18;
const ENDBR64 = 0xfa1e0ff3;
const MAX_DESCRIPTOR = 4096;
const MAX_KEPT = 64;
const DESCRIPTORS_NAME = 'zluda-descriptors';
const FOLLOWING_NAME = 'zluda-following';
const AGENTS_NAME = 'zluda-agents';
const MAX_AGENTS = 500;
const AF_UNIX = 1;

// What Frida hooks for as long as its session follows children.
const GATED = ['fork', 'execve', 'close', 'opendir', 'readdir', 'readdir_r', 'closedir'];

const keep = {};  // what lives as long as the process

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

// Has a function that Frida hooks go first to other code, in memory where a near jump reaches it: `write` puts it there, and
// gets where Frida's jump leads. Null where there is no such jump; `what` says what comes of that.
function comeBefore(name, what, write) {
  const address = Module.getGlobalExportByName(name);
  const jump = jumpAt(address);
  if (jump === null) {
    const start = Array.from(new Uint8Array(address.readByteArray(16)), byte => byte.toString(16).padStart(2, '0')).join('');
    send({ type: 'limit', message: `Frida hooks ${name} in another way here (${start}); ${what}` });
    return null;
  }
  const island = Memory.alloc(Process.pageSize, { near: address, maxDistance: 0x7fff0000 });
  Memory.patchCode(island, 64, code => {
    const writer = new X86Writer(code, { pc: island });
    write(writer, jump.target);
    writer.flush();
  });
  jump.redirect(island);
  return island;
}

// The memory by which children without an agent find the session, and whose it is: `struct following` in execs.c.
function followingMemory() {
  const memory = memoryNamed(FOLLOWING_NAME, Process.pageSize);
  memory.writeS32(Process.id);
  return memory;
}

// `name` is a Unix socket's in the abstract namespace; null: nobody follows.
function setFollower(memory, name) {
  const size = memory.add(4);
  size.writeU32(0);
  if (name === null)
    return;
  memory.add(8).writeU16(AF_UNIX);
  memory.add(10).writeByteArray([0, ...Array.from(name, letter => letter.charCodeAt(0))]);
  size.writeU32(2 + 1 + name.length);
}

function symbols(...names) {
  return Object.fromEntries(names.map(name => [name, Module.getGlobalExportByName(name)]));
}

// vfork as the C library has it: the return address must not be on the stack that the child shares. See forks.c.
const VFORK_CODE = [
  0x5f,                          // pop %rdi
  0xb8, 0x3a, 0x00, 0x00, 0x00,  // mov $SYS_vfork, %eax
  0x0f, 0x05,                    // syscall
  0x57,                          // push %rdi
  0x3d, 0x01, 0xf0, 0xff, 0xff,  // cmp $-4095, %eax
  0x73, 0x01,                    // jae 1f
  0xc3,                          // ret
  0x89, 0xc7,                    // 1: mov %eax, %edi
];

// Threads fork one after the other, and vfork is the kernel's: see forks.c.
function forkAlone(cSource, owner) {
  const page = Process.pageSize;
  const forking = Memory.alloc(page);
  const madvise = new NativeFunction(Module.getGlobalExportByName('madvise'), 'int', ['pointer', 'size_t', 'int']);
  madvise(forking, page, MADV_WIPEONFORK);
  const hooked = Memory.alloc(Process.pointerSize);
  const around = { ...symbols('nanosleep', 'getpid', 'syscall', '__errno_location'), forking, owner, hooked };
  const module = new CModule(cSource, around);
  keep.forks = [module, around];
  keep.fork = comeBefore('fork', 'threads that fork together may end the program', (writer, next) => {
    hooked.writePointer(next);
    writer.putJmpAddress(module.fork_alone);
  });
  keep.vfork = comeBefore('vfork', 'children of vfork are taken for those of fork', writer => {
    writer.putBytes(VFORK_CODE);
    writer.putJmpAddress(module.vfork_failed);
  });
}

// Children without an agent of their own tell what they become, see execs.c.
function followExecs(cSource, following) {
  const hooked = Memory.alloc(Process.pointerSize);
  const names = ['getpid', 'access', 'socket', 'connect', 'send', 'recv', 'close', 'syscall', '__errno_location'];
  const module = new CModule(cSource, { ...symbols(...names), following, hooked });
  keep.execs = [module, hooked];
  keep.exec = comeBefore('execve', 'recording ends where the program starts another by posix_spawn', (writer, next) => {
    hooked.writePointer(next);
    writer.putJmpAddress(module.followed_exec);
  });
}

// Frida's descriptors, as many as are kept open.
function fridasDescriptors() {
  const kept = [];
  for (let descriptor = 0; descriptor !== MAX_DESCRIPTOR && kept.length !== MAX_KEPT; descriptor++)
    if (Cloak.hasFileDescriptor(descriptor))
      kept.push(descriptor);
  return kept;
}

// Frida's descriptors outlive a close_range of the program, see descriptors.c.
function keepDescriptors(cSource, list, owner) {
  const closeRange = Module.findGlobalExportByName('close_range');
  if (closeRange === null)
    return;  // older than glibc 2.34
  const module = new CModule(`#define MAX_KEPT ${MAX_KEPT}\n${cSource}`, { ...symbols('getpid'), kept: list, owner, close_range: closeRange });
  for (const name of ['close_range', 'closefrom']) {
    const address = Module.findGlobalExportByName(name);
    if (address !== null)
      Interceptor.replace(address, module[`${name}_but_kept`]);
  }
  Interceptor.flush();
  keep.descriptors = module;
}

// When a session ends, however it does, Frida takes its hooks of these out under threads that are at them. A function with
// another hook keeps its code as it is. (Not so vfork: nothing may come between it and the child's way back.)
function holdHooks() {
  const nothing = new CModule('#include <gum/guminterceptor.h>\nvoid nothing (GumInvocationContext * context) {}');
  for (const name of GATED) {
    const address = Module.findGlobalExportByName(name);
    if (address !== null && jumpAt(address) !== null)
      Interceptor.attach(address, { onEnter: nothing.nothing });
  }
  keep.nothing = nothing;
}

// A process ends when its last thread does, but Frida's threads do not: a main thread that would leave the others by
// `pthread_exit` waits for them instead, see exits.c. Frida, too, cannot end a process without a main thread.
function stayToTheEnd(cSource, agents) {
  const leave = Module.findGlobalExportByName('pthread_exit');
  if (leave === null)
    return;
  const names = ['gettid', 'getpid', 'nanosleep', 'opendir', 'readdir', 'closedir', 'exit'];
  const exits = new CModule(cSource, { ...symbols(...names), agents });
  keep.exits = exits;
  Interceptor.attach(leave, { onEnter: exits.enter_exit });
}

// Where this agent's code is.
function placeOfAgent() {
  const module = new CModule(
    '#include <gum/guminterceptor.h>\nvoid * place (void) { return gum_invocation_context_get_listener_function_data; }');
  const place = new NativeFunction(module.place, 'pointer', [])();
  module.dispose();
  return place;
}

// Puts this agent on the list of the process's: how many there are, then the place of each and what tells its threads.
// Returns its number; -1 if it is there already.
function enroll(agents) {
  const place = placeOfAgent(), count = agents.readU64().toNumber(), entry = agents.add(8 + 16 * count);
  for (let number = 0; number !== count; number++)
    if (agents.add(8 + 16 * number).readPointer().equals(place))
      return -1;
  if (count === MAX_AGENTS)
    throw new Error(`this process has been recorded ${MAX_AGENTS} times`);
  keep.is_fridas = new NativeCallback(thread => Cloak.hasThread(thread) ? 1 : 0, 'int', ['int']);
  entry.writePointer(place);
  entry.add(8).writePointer(keep.is_fridas);
  agents.writeU64(count + 1);
  return count;
}

rpc.exports = {
  begin(sources, follower) {
    const page = Process.pageSize;
    const following = memoriesNamed(FOLLOWING_NAME)[0] ?? followingMemory();
    setFollower(following, follower);
    const list = memoriesNamed(DESCRIPTORS_NAME)[0] ?? memoryNamed(DESCRIPTORS_NAME, page);
    const agents = memoriesNamed(AGENTS_NAME)[0] ?? memoryNamed(AGENTS_NAME, 2 * page);
    const kept = fridasDescriptors();
    [kept.length, ...kept].forEach((word, index) => list.add(4 * index).writeU32(word));
    const number = enroll(agents);
    if (number === -1)
      return;
    if (number === 0) {
      keepDescriptors(sources.descriptors, list, following);
      stayToTheEnd(sources.exits, agents);
    }
    forkAlone(sources.forks, following);
    followExecs(sources.execs, following);
    holdHooks();
  },
};

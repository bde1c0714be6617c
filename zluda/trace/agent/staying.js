// What comes into a process with its first session and stays for good, in a script of its own: Frida disposes of the others'
// memory in a forked child, on the stack of which `fork_alone` is, and at the end of a recording.

const MADV_WIPEONFORK = 18;
const ENDBR64 = 0xfa1e0ff3;
const MAX_DESCRIPTOR = 4096;
const MAX_KEPT = 64;
const DESCRIPTORS_NAME = 'zluda-descriptors';

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
  keep.forks = comeBefore('fork', 'threads that fork together may end the program', hooked_fork => {
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
  keep.execs = comeBefore('execve', 'recording ends where the program starts another by posix_spawn', hooked_exec => {
    const module = new CModule(cSource, { becoming: memoryNamed(BECOMING_NAME, Process.pageSize), getpid: Module.getGlobalExportByName('getpid'), hooked_exec });
    return { module, first: module.told_exec };
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
function keepDescriptors(cSource, list) {
  const closeRange = Module.findGlobalExportByName('close_range');
  if (closeRange === null)
    return;  // older than glibc 2.34
  const module = new CModule(`#define MAX_KEPT ${MAX_KEPT}\n${cSource}`, { kept: list, close_range: closeRange });
  for (const name of ['close_range', 'closefrom']) {
    const address = Module.findGlobalExportByName(name);
    if (address !== null)
      Interceptor.replace(address, module[`${name}_but_kept`]);
  }
  Interceptor.flush();
  keep.descriptors = module;
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
  const exits = new CModule(cSource, symbols);
  keep.exits = { exits, is_fridas };
  Interceptor.attach(leave, { onEnter: exits.enter_exit });
}

rpc.exports = {
  // An earlier session of the process, or of the one that it was forked from, may have seen to all: then the list of
  // descriptors is brought up to date.
  begin(sources) {
    const lists = memoriesNamed(DESCRIPTORS_NAME);
    const first = lists.length === 0;
    if (first)
      lists.push(memoryNamed(DESCRIPTORS_NAME, Process.pageSize));
    const kept = fridasDescriptors();
    for (const list of lists)
      [kept.length, ...kept].forEach((word, index) => list.add(4 * index).writeU32(word));
    if (!first)
      return;
    keepDescriptors(sources.descriptors, lists[0]);
    forkAlone(sources.forks);
    tellExecs(sources.execs);
    stayToTheEnd(sources.exits);
  },
};

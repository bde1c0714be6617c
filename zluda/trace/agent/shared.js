// What both scripts of the agent's begin with: machine code's jumps, and memory that a later script finds.

'use strict';

const JUMP = 0xe9;            // jmp rel32
const JUMP_SHORT = 0xeb;      // jmp rel8
const JUMP_INDIRECT = 0x25ff; // jmp [rip + rel32]
const NAME_BYTES = 64;
const FOLLOWING_NAME = 'zluda-following';
const FIRST_AT = 128;         // `struct first` of forks.c, behind `struct following` of execs.c
const MAX_DESCRIPTOR = 4096;
const MAX_KEPT = 64;
const DESCRIPTORS_NAME = 'zluda-descriptors';
const DESCRIPTORS_AT = { code: 0, bits: 16, count: 16 + MAX_DESCRIPTOR / 8 };  // `struct kept` in descriptors.c
const PROT_NONE = 0;
const PROT_READ_WRITE = 3;
const MAP_PRIVATE_ANONYMOUS = 0x22;

function systemFunction(symbol, result, types) {
  return new NativeFunction(Module.getGlobalExportByName(symbol), result, types);
}

// Memory that a later agent finds by a name, and of which a forked child has a copy: it begins with the name, and lies by
// itself between pages without access. (A file's name would need a file, whose size the program's limits may forbid.)
function memoryNamed(name, size) {
  const page = Process.pageSize;
  const around = systemFunction('mmap', 'pointer', ['pointer', 'size_t', 'int', 'int', 'int', 'int64'])(
    NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE_ANONYMOUS, -1, 0);
  const memory = around.add(page);
  if (around.equals(ptr(-1)) || systemFunction('mprotect', 'int', ['pointer', 'size_t', 'int'])(memory, size, PROT_READ_WRITE) !== 0)
    throw new Error('no memory');
  memory.writeUtf8String(name);
  return memory.add(NAME_BYTES);
}

function memoriesNamed(name) {
  return Process.enumerateRanges('rw-').filter(({ base, file }) => file === undefined && isNamed(base, name))
    .map(({ base }) => base.add(NAME_BYTES));
}

// Another thread may unmap it at this moment.
function isNamed(base, name) {
  try {
    for (let index = 0; index <= name.length; index++)
      if (base.add(index).readU8() !== (index === name.length ? 0 : name.charCodeAt(index)))
        return false;
    return true;
  } catch (gone) {
    return false;
  }
}

// What Frida has open by now is kept open from now on, see descriptors.c.
function keepOpen(list) {
  const words = new BigUint64Array(MAX_DESCRIPTOR / 64), kept = [];
  for (let descriptor = 0; descriptor !== MAX_DESCRIPTOR && kept.length !== MAX_KEPT; descriptor++)
    if (Cloak.hasFileDescriptor(descriptor)) {
      kept.push(descriptor);
      words[descriptor >> 6] |= 1n << BigInt(descriptor & 63);
    }
  [kept.length, ...kept].forEach((word, index) => list.add(DESCRIPTORS_AT.count + 4 * index).writeU32(word));
  list.add(DESCRIPTORS_AT.bits).writeByteArray(words.buffer);
}

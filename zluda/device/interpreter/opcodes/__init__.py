"""The instructions, a module for each family of the PTX ISA manual's chapter 9.7."""

.code16
.globl _start
_start:
 cli
 xorw %ax,%ax
 movw %ax,%ds
 movw %ax,%es
 movw %ax,%ss
 movw $0x7c00,%sp
 movb %dl,0x7ff
 xorl %eax,%eax
 movl %eax,0x1000
 sti
 cld
next:
# the disk has what the memory has
 movb $0x42,%ah
 movw $0x1200,%bx
 call disk
 movl 0x1000,%eax
 movb $'.',%bl
 cmpl %eax,0x1200
 je same
 movb $'!',%bl
same:
 incl %eax
 movl %eax,0x1000
# 64 KiB of memory have it, too
 movw $0x2000,%dx
 movw %dx,%es
 xorw %di,%di
 movw $0x4000,%cx
 rep stosl
 push %bx
 movb $0x43,%ah
 movw $0x1000,%bx
 call disk
 pop %bx
# say it
 movl 0x1000,%eax
 movw $8,%cx
digit:
 roll $4,%eax
 push %ax
 andb $15,%al
 addb $'0',%al
 cmpb $'9',%al
 jbe put
 addb $39,%al
put:
 call say
 pop %ax
 loop digit
 movb %bl,%al
 call say
 movb $10,%al
 call say
# two ticks of 55 ms
 movw $2,%cx
tick:
 movb 0x46c,%al
wait_:
 hlt
 cmpb %al,0x46c
 je wait_
 loop tick
 jmp next
say:
 push %ax
 movw $0x3fd,%dx
full:
 inb %dx,%al
 testb $0x20,%al
 jz full
 pop %ax
 movw $0x3f8,%dx
 outb %al,%dx
 ret
disk:
 movw %bx,packet+4
 movw $packet,%si
 xorb %al,%al
 movb 0x7ff,%dl
 int $0x13
 ret
packet: .byte 16,0
 .word 1
 .word 0,0
 .quad 8
